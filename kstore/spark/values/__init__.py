"""Keys and values as columns of Spark's types; importing its modules requires pyarrow."""
