"""Which segments retention removes, and compaction of the others into new files. May use segment and state."""
