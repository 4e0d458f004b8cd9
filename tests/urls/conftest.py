"""One S3 server for all tests here; each test has a key of its own."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.s3 import S3Server

FLIGHTS = Path(__file__).resolve().parents[2] / "examples" / "flights"


@pytest.fixture(scope="session")
def running_server() -> Iterator[S3Server]:
    server = S3Server()
    server.upload(FLIGHTS, "flights")
    yield server
    server.stop()


@pytest.fixture
def server(running_server: S3Server) -> S3Server:
    running_server.requests.clear()
    return running_server


@pytest.fixture
def local_flights(tmp_path: Path) -> Path:
    """A copy of the flights that a test may change."""
    return Path(shutil.copytree(FLIGHTS, tmp_path / "flights"))
