"""Random histories of one log, by kstore and by Kafka's own UnifiedLog.

After each step every answer is compared, at the end every file by its bytes.

A history is drawn from its seed alone, so that one that differs can be run again. What kstore does otherwise on purpose
has a row in docs/durability.md; here either kstore is brought to where Kafka is, so that the history continues, or the
history ends (Parted).
"""
