"""Tiered storage, read without a broker: which objects are segments, how their bytes are stored, which of them are the
log, and an Env that shows them as the directories of a root.
"""
