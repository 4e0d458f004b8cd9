"""kstore measured beside its rivals: `python -m bench`; see README.md."""
