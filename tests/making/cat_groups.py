"""The records that `kstore cat` selects, without printing them."""

from __future__ import annotations

from collections.abc import Iterator

from kstore.cli.printing.cat import CatOptions, batches_of, groups_of
from kstore.cli.printing.formats import Group
from kstore.log.damage import OnSkip
from kstore.log.log import Log


def groups(log: Log, wanted: CatOptions, *, on_skip: OnSkip | None = None) -> Iterator[Group]:
    """Yield the selected records of a log in groups, each of one batch."""
    for batch, start_offset, end_offset in batches_of(log, wanted, on_skip=on_skip):
        yield from groups_of(batch, wanted, start_offset=start_offset, end_offset=end_offset)
