"""What a report shows of a root or a partition: collected in one pass over the batches, then as JSON or as a page."""
