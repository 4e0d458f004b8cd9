"""Transactions: a producer's state (manager) and the coordinator that keeps transactional ids in a store."""
