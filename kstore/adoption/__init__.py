"""Adoption: what a KRaft broker needs to serve partitions that it has not made: its metadata, written beside them."""
