"""What a store of many logs keeps and does beside them: topic settings, deletion, maintenance, metrics."""
