"""Producer batches before they are sent: memory, queues, sequence numbers and futures."""
