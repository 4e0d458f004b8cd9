"""One partition: its files, segments and indexes, the Log that reads them and the WritableLog that writes them."""
