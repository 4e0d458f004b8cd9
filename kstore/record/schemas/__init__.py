"""Kafka's generated message schemas as tables, for records of internal topics."""
