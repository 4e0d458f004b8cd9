"""`kstore serve`."""
