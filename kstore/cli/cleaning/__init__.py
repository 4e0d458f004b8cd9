"""`kstore compact` and `kstore retention`, which remove records that are no longer needed."""
