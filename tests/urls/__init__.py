"""Files that lie elsewhere: URLs, a real S3 server on loopback, and file systems of fsspec."""
