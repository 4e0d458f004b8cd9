"""Exports to tables of Delta Lake and Apache Iceberg."""
