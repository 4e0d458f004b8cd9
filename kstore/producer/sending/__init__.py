"""What is sent, and what becomes of it: the Sender, sinks, and the completion of batches."""
