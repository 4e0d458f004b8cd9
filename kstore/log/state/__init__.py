"""What a log knows about producers, leader epochs and transactions. May use files and segment."""
