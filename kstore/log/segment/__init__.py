"""One segment: records, indexes, the readable and the writable segment, its check. May use files."""
