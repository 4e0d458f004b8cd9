"""One segment: the readable and the writable one, changes of its files, searches. May use damaged."""
