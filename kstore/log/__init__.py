"""Files: directories, segments, indexes and the Log over them. Layer 5: reads only, takes no lock."""
