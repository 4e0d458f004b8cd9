"""Streams that read format("kstore"): options, offsets, limits, the logs they follow, and the reader."""
