"""`kstore groups` and `kstore stat`, which say what the records of a root mean and what they weigh."""
