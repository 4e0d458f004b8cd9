"""Where files of tests lie in memory."""

from __future__ import annotations

from pathlib import Path

# None where the system has no such place.
IN_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
