"""The files of a release: one sdist, and wheels of the version for each Python on each platform."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import product
from pathlib import Path

from packaging.utils import InvalidSdistFilename, InvalidWheelFilename, parse_sdist_filename, parse_wheel_filename

# manylinux_2_28_x86_64 and manylinux_2_17_x86_64 are one platform, as are macosx_11_0_arm64 and macosx_14_0_arm64.
SYSTEM = re.compile(r"(manylinux|musllinux|macosx|linux|win)(?:\d+|_\d+_\d+)?_(\w+)")


def platform_of(tag: str) -> str:
    """Return the system and the machine of a platform tag, without a version of the system."""
    match = SYSTEM.fullmatch(tag)
    return tag if match is None else f"{match[1]}_{match[2]}"


def wrong_files(paths: Iterable[Path], version: str) -> list[str]:
    """Return what is wrong with the files of a release, one line each."""
    wrong: list[str] = []
    sdists: list[str] = []
    wheels: set[tuple[str, str]] = set()
    for path in sorted(paths):
        try:
            if path.name.endswith(".whl"):
                name, found, _, tags = parse_wheel_filename(path.name)
                wheels |= {(tag.abi, platform_of(tag.platform)) for tag in tags}
            else:
                name, found = parse_sdist_filename(path.name)
                sdists.append(path.name)
        except (InvalidWheelFilename, InvalidSdistFilename):
            wrong.append(f"{path.name}: expected a wheel or an sdist")
            continue
        if (name, str(found)) != ("kstore", version):
            wrong.append(f"{path.name}: expected kstore {version}")
    if len(sdists) != 1:
        wrong.append(f"expected one sdist, found {len(sdists)}")
    abis, platforms = {abi for abi, _ in wheels}, {platform for _, platform in wheels}
    wrong += [f"no wheel of {abi} for {platform}" for abi, platform in sorted({*product(abis, platforms)} - wheels)]
    return wrong if wheels else [*wrong, "no wheel"]
