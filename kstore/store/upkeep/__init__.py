"""What a store of many logs keeps and does beside them: deletion, maintenance, metrics."""
