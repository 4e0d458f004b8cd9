"""The metadata of a KRaft cluster: the records of `__cluster_metadata`, and the state that they add up to."""
