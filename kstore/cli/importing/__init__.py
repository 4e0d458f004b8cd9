"""`kstore import`: records of files in the formats that people have, and roots as they are."""
