"""Which bytes of a damaged .log are batches, for verify, skipping readers and salvage. May use files."""
