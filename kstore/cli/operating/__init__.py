"""`kstore topics`, `configs`, `delete-records`, `delete-topic`, `move` and `metadata`: the work of an operator."""
