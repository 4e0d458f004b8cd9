"""Loading a log after a crash, in three modes. Uses files, segment, state."""
