"""Exports in object stores: target.py is the target of one, without lock and rename."""
