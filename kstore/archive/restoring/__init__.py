"""Restores: partitions of a root, up to an offset or a time, appended to another root batch by batch as they are."""
