"""Read a partition directory with an installed kstore and print what was found: tests and wheel builds run it.

python tests/wheel/read_segment.py PARTITION_DIR
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import kstore
from kstore import _core


def main(directory: str) -> None:
    """Print one JSON line: records, log_end_offset, values_sha256, and where kstore came from."""
    digest = hashlib.sha256()
    records = 0
    with kstore.open_log(directory) as log:
        for record in log.read():
            value = record.value
            digest.update(b"null" if value is None else hashlib.sha256(value).hexdigest().encode())
            records += 1
        found = {"records": records, "log_end_offset": log.log_end_offset, "values_sha256": digest.hexdigest()}
    print(json.dumps({**found, "package": str(Path(_core.__file__).parent)}))
    manifest = json.loads((Path(directory).resolve().parent / "MANIFEST.json").read_text())
    said = next(entry for entry in manifest["partitions"] if directory.rstrip("/").endswith(f"-{entry['partition']}"))
    sys.exit(any(value != said[name] for name, value in found.items()))


if __name__ == "__main__":
    main(sys.argv[1])
