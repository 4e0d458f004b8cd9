"""Which modules a program imports."""

from __future__ import annotations

import subprocess
import sys


def imported_by(code: str) -> set[str]:
    """Return the modules that a new process has imported after some code, which prints nothing."""
    code = f"{code}\nimport sys\nprint(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return set(run.stdout.split())
