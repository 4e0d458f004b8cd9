"""Goal: it is told of a part of a file whether reading it would wait for the disk.
Method: preadv as a file system answers it whose cache has some pages."""

from __future__ import annotations

import errno
import os

import pytest

from kstore.env import DEFAULT_ENV

PAGE, SIZE = 4096, 1 << 20

pytestmark = pytest.mark.skipif(not hasattr(os, "RWF_NOWAIT"), reason="the system cannot say it")


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(bytes(SIZE))
    with DEFAULT_ENV.open_read(str(path)) as opened:
        yield opened


@pytest.mark.parametrize("missing", [0, SIZE // 2, SIZE - 1])
def test_a_part_with_a_page_that_is_not_in_memory_is_not_cached(file, monkeypatch, missing):
    def preadv(fd, buffers, position, flags=0):
        assert flags == os.RWF_NOWAIT
        if position // PAGE == missing // PAGE:
            raise BlockingIOError
        return 1

    monkeypatch.setattr(os, "preadv", preadv)
    assert not file.is_cached(position=0, size=SIZE)
    assert file.is_cached(position=0, size=0)
    assert file.is_cached(position=PAGE, size=PAGE)


def test_a_file_system_that_cannot_say_it_is_not_asked_again(file, monkeypatch):
    def preadv(*_):
        raise OSError(errno.EOPNOTSUPP, "not supported")

    monkeypatch.setattr(os, "preadv", preadv)
    assert file.is_cached(position=0, size=SIZE)
