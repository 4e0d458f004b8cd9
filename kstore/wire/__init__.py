"""Kafka's messages by their schemas: the encoding, the requests and answers of the protocol."""
