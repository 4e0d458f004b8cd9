"""`kstore export`."""
