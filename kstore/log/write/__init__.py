"""The writable log: appends, rolls, truncation, durability. May use every other folder of kstore.log."""
