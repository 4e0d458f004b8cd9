"""Transactional ids: the state of a producer, and the coordinator that a store holds."""
