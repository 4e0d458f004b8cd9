"""kstore's commands of an operator beside Kafka's own tools, on the directories of one real broker."""
