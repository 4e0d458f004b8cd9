"""A store served by Kafka's protocol: one node, which is the leader of all partitions of a root."""
