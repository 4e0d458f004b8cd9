"""Settings of the topics of a root: what its files say of them, and what a writer keeps. May use log.py and files."""
