"""All partitions of a root: Store and WritableStore, open_log, verify and recover, and what a store does by itself."""
