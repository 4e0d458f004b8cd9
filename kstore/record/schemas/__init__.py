"""Schemas of the records in internal topics, as tables, and their decoding."""
