"""The files of a partition and of a root: names, batches, columns, indexes, checkpoints, locks. May use env."""
