"""`kstore cat --follow`."""
