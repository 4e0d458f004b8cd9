"""Spark jobs that kstore starts itself: exports, and reads whose plan is made in tasks. May use all of spark/."""
