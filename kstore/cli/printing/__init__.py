"""`kstore cat`: records, as they are and decoded, and new ones as they come."""
