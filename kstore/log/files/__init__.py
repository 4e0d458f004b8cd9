"""Files next to the segments: names, checkpoints, locks, the durable point, producer snapshots. May use env."""
