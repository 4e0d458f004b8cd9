"""Batches of the producer before they are sent: memory, queues, sequences, futures."""
