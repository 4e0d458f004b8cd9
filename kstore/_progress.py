"""How far a call is that may take long: a bar of tqdm, in notebooks a widget, or a callback."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from types import TracebackType

Progress: TypeAlias = bool | Callable[[int, int], object]


class ProgressBar:
    """Shows how many bytes a call has processed. A context manager: it closes the bar.

    Args: wanted: the argument `progress` of the call: True for a bar, a function of (done bytes, total bytes), or
        False; label: of the bar.
    Raises: ModuleNotFoundError for True without tqdm.
    Threads: not thread-safe.
    """

    def __init__(self, wanted: Progress, label: str) -> None:
        self._function = None if isinstance(wanted, bool) else wanted
        self._tqdm = _tqdm() if wanted is True else None
        self._label = label
        self._bar: Any = None
        self._done = self._total = 0

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None and self._done < self._total:
            self.add(self._total - self._done)
        self._close()

    @property
    def is_wanted(self) -> bool:
        """Whether there is a bar or a function to update."""
        return self._tqdm is not None or self._function is not None

    def begin(self, total_bytes: int) -> None:
        """Start at 0 of a number of bytes; a bar that was begun before is full."""
        if self._done < self._total:
            self.add(self._total - self._done)
        self._close()
        self._done, self._total = 0, total_bytes
        if self._tqdm is not None:
            self._bar = self._tqdm(total=self._total, desc=self._label, unit="B", unit_scale=True)
        self.add(0)

    def add(self, size: int) -> None:
        """Advance by a number of bytes, at most up to the total."""
        size = min(size, self._total - self._done)
        self._done += size
        if self._bar is not None:
            self._bar.update(size)
        elif self._function is not None:
            self._function(self._done, self._total)

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def _tqdm() -> Callable[..., Any]:
    try:
        from tqdm.auto import tqdm
    except ModuleNotFoundError as error:
        message = f"a progress bar needs the package {error.name}: pip install 'kstore[progress]'"
        raise ModuleNotFoundError(message, name=error.name) from error
    bar: Callable[..., Any] = tqdm
    return bar
