"""What the tests of the package and of the snippets install, made once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Translation
from tests.making.installing import Environments, build_wheel, write_compiler


@pytest.fixture(scope="session")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A C compiler that compiles each source once."""
    return write_compiler(tmp_path_factory.mktemp("compiler"))


@pytest.fixture(scope="session")
def wheel(translation: Translation, compiler: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of `pip wheel .`."""
    target = tmp_path_factory.mktemp("wheel") / "dist"
    return build_wheel(translation.tree, target, compiler=compiler, translator=translation.translator)


@pytest.fixture(scope="session")
def environments(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environments:
    """Empty environments with the wheel, one per extra."""
    return Environments(wheel, tmp_path_factory.mktemp("environments"))
