"""Loading a log after a crash, in three modes. May use files, segment and state."""
