"""Avro: schemas, and values of them as columns. May use decoded, registry."""
