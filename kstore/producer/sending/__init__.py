"""Sending batches: the Sender thread, sinks, and the completion of batches."""
