"""`kstore groups` and `kstore stat`: the consumer groups of a root, and the sizes of its partitions."""
