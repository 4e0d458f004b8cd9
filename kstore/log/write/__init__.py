"""The writable log: appends, rolls, truncation, durability. Uses everything below it."""
