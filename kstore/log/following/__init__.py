"""Following a log while it grows: what wakes a follower, what it was given, and how it is iterated."""
