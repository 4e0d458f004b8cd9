"""CountingEnv: the operating system, with a count of what is opened, read and synced."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kstore.env import LocalEnv, LocalFile, WriteFile
from kstore.errors import LogClosedError


class CountingEnv(LocalEnv):
    """Attributes: opened: the files that were opened to be read, in order; read_names: those that were read whole;
    log_bytes: how many bytes of .log files were read; directory_syncs.
    """

    def __init__(self) -> None:
        self.opened: list[LocalFile] = []
        self.read_names: list[str] = []
        self.log_bytes = 0
        self.directory_syncs = 0

    def open_read(self, path: str) -> LocalFile:
        self.opened.append(self._counted(super().open_read(path)))
        return self.opened[-1]

    def open_write(self, path: str) -> WriteFile:
        file: WriteFile = self._counted(super().open_write(path))
        return file

    def read_file(self, path: str, *, max_bytes: int) -> bytes:
        self.read_names.append(Path(path).name)
        return super().read_file(path, max_bytes=max_bytes)

    def sync_directory(self, path: str) -> None:
        self.directory_syncs += 1
        super().sync_directory(path)

    def open_names(self) -> list[str]:
        """Return the names of the files that were opened to be read and are not closed."""
        names = []
        for file in self.opened:
            try:
                file.size()
            except LogClosedError:
                continue
            names.append(Path(file.path).name)
        return names

    def _counted(self, file: Any) -> Any:
        if file.path.endswith(".log"):
            pread, pread_into = file.pread, file.pread_into

            def counting(size: int, *, position: int) -> bytes:
                data: bytes = pread(size, position=position)
                self.log_bytes += len(data)
                return data

            def counting_into(buffer: bytearray | memoryview, *, position: int) -> int:
                done: int = pread_into(buffer, position=position)
                self.log_bytes += done
                return done

            file.pread, file.pread_into = counting, counting_into
        return file
