"""A home of the installed Spark whose Python workers import compiled modules.

Spark puts python/lib/pyspark.zip first on the path of each Python worker. Nothing in an archive is compiled ahead, so a
worker compiles what it imports: 0.8 s of its start. Here a directory of that name leads to the installed package.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from importlib import metadata, util
from pathlib import Path


def spark_home() -> Path | None:
    """Return the home, made in the environment when it is first asked for; None if pyspark is not installed."""
    spec = util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        return None
    installed = Path(spec.origin).resolve().parent
    home = Path(sys.prefix) / f"spark-home-{metadata.version('pyspark')}"
    if not (home / "bin").exists():
        # As after the environment was moved.
        shutil.rmtree(home, ignore_errors=True)
        made = Path(tempfile.mkdtemp(dir=sys.prefix))
        try:
            _fill(made, installed)
            made.rename(home)
        except OSError:
            shutil.rmtree(made)
            if not (home / "bin").exists():
                raise
    return home


def _fill(home: Path, installed: Path) -> None:
    for path in installed.iterdir():
        if path.name != "python":
            (home / path.name).symlink_to(path)
    for archive in (installed / "python" / "lib").glob("*.zip"):
        name = archive.name.partition("-")[0].removesuffix(".zip")
        directory = home / "python" / "lib" / archive.name
        directory.mkdir(parents=True)
        (directory / name).symlink_to(installed.parent / name)
