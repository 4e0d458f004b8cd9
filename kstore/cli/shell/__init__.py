"""What the command is for a shell and its user: grouped help with examples, completion, names that were meant.

Everything here is imported by `kstore --help`: what needs the core is imported where it is used.
"""
