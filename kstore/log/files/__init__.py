"""The files of a partition and of a root: names, batches, indexes, snapshots, checkpoints, locks. May use env."""
