"""What each request does and answers: one function an api."""
