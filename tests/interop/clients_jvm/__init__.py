"""Kafka's own clients in Java and programs built on them, against `kstore serve` and against a broker."""
