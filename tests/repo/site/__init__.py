"""The site of the documentation: `python -m tests.repo.site DIRECTORY` (make docs), by pdoc and Zensical."""
