"""Who a client of a server is, and what it may do."""
