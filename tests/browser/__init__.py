"""Pages in a real browser: those of `kstore report` and of the site; `make report-browser`, `make site-browser`."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from shutil import which

MISSING = 77
_MODULES = ("playwright", "axe_playwright_python")


def chromium() -> str | None:
    """Return the path of Chromium, None with a line on standard error if it or what drives it is missing."""
    for module in _MODULES:
        if find_spec(module) is None:
            sys.stderr.write(f"needs {module}: pip install playwright axe-playwright-python\n")
            return None
    executable = which("chromium") or which("google-chrome")
    if executable is None:
        sys.stderr.write("needs chromium\n")
    return executable
