"""Keys and values as columns: Avro and Kafka's own primitives, by schemas that are given or lie on the disk.

Importing this package requires pyarrow.
"""
