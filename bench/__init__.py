"""Benchmarks of kstore and its rivals: `python -m bench`; see README.md."""
