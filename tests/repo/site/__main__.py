"""python -m tests.repo.site DIRECTORY: write the site, and print what is wrong with it; end with 1 if anything is."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.repo.site.building import BuildError, build
from tests.repo.site.links import broken_links, requested_hosts
from tests.repo.site.reference import names_without_a_line


def main(directory: str) -> int:
    target = Path(directory).resolve()
    with tempfile.TemporaryDirectory() as scratch:
        try:
            build(target, Path(scratch))
        except BuildError as error:
            sys.stderr.write(f"{error}\n")
            return 1
    wrong = [f"says nothing: {name}" for name in names_without_a_line()]
    wrong += [f"leads nowhere: {link}" for link in broken_links(target)]
    wrong += [f"asks another host: {link}" for link in requested_hosts(target)]
    sys.stderr.writelines(f"{line}\n" for line in wrong)
    if not wrong:
        sys.stdout.write(f"{target / 'index.html'}\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
