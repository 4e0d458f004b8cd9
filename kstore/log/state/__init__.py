"""What a log knows about producers, leader epochs and transactions. Uses files and segment."""
