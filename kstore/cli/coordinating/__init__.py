"""What `kstore transactions` and `kstore groups` do."""
