"""Types of the compiled half of log/env.py's open files, which kstore._core has too."""

from collections.abc import Callable
from types import ModuleType

from typing_extensions import disjoint_base

from kstore._core import HeaderScan

@disjoint_base
class PositionedFile:
    path: str
    _fd: int
    def __init__(
        self, fd: int, *, path: str, system: ModuleType, to_error: Callable[[str, str, OSError], Exception]
    ) -> None: ...
    def pread(self, size: int, *, position: int) -> bytes: ...
    def walk_cached(self, scan: HeaderScan) -> None: ...
    def close(self) -> None: ...

class PositionedWriteFile(PositionedFile):
    def pwrite(self, data: bytes | bytearray | memoryview, *, position: int) -> None: ...
