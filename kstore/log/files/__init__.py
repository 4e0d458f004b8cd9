"""Files beside the records: names, checkpoints, locks, the durable point, producer snapshots. May use env."""
