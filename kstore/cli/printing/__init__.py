"""What is printed: records, as they are and decoded, and new ones as they come; lists in an order, or watched."""
