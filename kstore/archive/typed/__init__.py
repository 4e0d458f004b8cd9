"""Keys and values of an export as columns; importing its module requires pyarrow."""
