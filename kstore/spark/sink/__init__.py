"""The sink of format("kstore"): tasks stage rows under the root, and the driver commits them in one transaction."""
