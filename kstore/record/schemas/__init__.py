"""Kafka's message schemas as tables: the records of internal topics and the protocol that encodes them."""
