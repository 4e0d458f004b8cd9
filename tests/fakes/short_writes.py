"""ShortWrites: for files of tests whose pwrite fails on demand; the system takes a part of each vectored write."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kstore.env import WriteFile

if TYPE_CHECKING:
    from typing_extensions import Buffer


class ShortWrites(WriteFile):
    """A file whose vectored writes take half of the bytes, by its own pwrite; WriteFile.pwritev writes the rest."""

    def _write_parts(self, parts: list[Buffer], *, position: int) -> int:
        data = b"".join(parts)
        half = (len(data) + 1) // 2
        self.pwrite(data[:half], position=position)
        return half
