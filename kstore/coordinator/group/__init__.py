"""The group coordinator: committed offsets and group metadata, in `__consumer_offsets`."""
