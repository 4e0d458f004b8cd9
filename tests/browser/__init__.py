"""The page of `kstore report` in a real browser: `make report-browser`."""
