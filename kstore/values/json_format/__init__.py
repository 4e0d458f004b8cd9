"""JSON values: their types from JSON Schema, from a sample or given, and their columns."""
