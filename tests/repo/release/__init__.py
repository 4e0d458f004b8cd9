"""What goes before a release: `python -m tests.repo.release` (make release-check), all of it but the upload."""
