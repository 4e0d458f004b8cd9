"""Groups of KIP-848, whose members the coordinator gives their partitions."""
