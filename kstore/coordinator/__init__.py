"""Kafka's group coordinator and transaction coordinator over the internal topics of a store."""
