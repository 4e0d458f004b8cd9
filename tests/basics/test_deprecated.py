"""Goal: the old names of arguments do what the new ones do, and a warning says so.
Method: each row of the tables of kstore._deprecated, against the same call with the new name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import kstore
from kstore._deprecated import OLD_KEYWORDS, OLD_POSITIONS, OLD_VALUES
from tests.making.collecting import over

# What is called for a row of the tables, and the values of its arguments.
CALLS: dict[str, Callable[[str, Any], object]] = {
    "Log.read": lambda root, options: read(root, lambda log: [*log.read(**options)]),
    "Log.follow": lambda root, options: read(root, lambda log: [*log.follow(timeout=0, **options)]),
    "RootLogs.follow": lambda root, options: [*kstore.open_store(root).follow(timeout=0, **options)],
    "recover": lambda root, options: kstore.recover(root, dry_run=True, **options),
}
VALUES = {"key_deserializer": "string", "value_deserializer": "string", "recovery": "salvage"}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("root"))
    with kstore.open_store(path, "a") as store:
        store.create_topic("t")
        store.log("t").append([kstore.Record(key=b"k", value=b"v") for _ in range(10)])
    return path


def read(root: str, ask: Callable[[kstore.Log], object]) -> object:
    with kstore.open_log(f"{root}/t-0") as log:
        return ask(log)


ROWS = [(name, old, new) for name, keywords in OLD_KEYWORDS.items() for old, new in keywords.items()]


@over("name, old, new", ROWS)
def test_old_keyword_does_what_the_new_one_does(name: str, old: str, new: str, root: str) -> None:
    value = VALUES[new]
    with pytest.warns(DeprecationWarning, match=f"{new}=.*{old}") as caught:
        answer = CALLS[name](root, {old: value})
    assert [warning.filename for warning in caught] == [__file__]
    assert answer == CALLS[name](root, {new: value}) != []
    with pytest.raises(TypeError, match=f"{new}= once, got {old}="):
        CALLS[name](root, {old: value, new: None})


def test_plan_takes_its_old_positions(root: str) -> None:
    assert OLD_POSITIONS == {"Log.plan": ("max_bytes", "start_offset", "end_offset")}
    with kstore.open_log(f"{root}/t-0") as log:
        expected = log.plan(start_offset=2, end_offset=5, max_bytes=50)
        with pytest.warns(DeprecationWarning, match="max_bytes=") as caught:
            assert log.plan(50, 2, 5) == expected  # type: ignore[misc]
        assert [warning.filename for warning in caught] == [__file__]
        with pytest.warns(DeprecationWarning, match="max_bytes="):
            assert log.plan(50, start_offset=2, end_offset=5) == expected  # type: ignore[misc]
        with pytest.raises(TypeError, match="start_offset= once"):
            log.plan(50, 2, start_offset=2)  # type: ignore[misc]
        with pytest.raises(TypeError, match="positional"):
            log.plan(50, 2, 5, "read_committed")  # type: ignore[misc]


def test_old_level_of_an_append_does_what_the_new_one_does(root: str) -> None:
    assert OLD_VALUES == {"ack": {"buffered": "written"}}
    with kstore.open_store(root, "a") as store:
        store.create_topic("levels")
        log = store.log("levels")
        with pytest.warns(DeprecationWarning, match="written.*0.2") as caught:
            assert log.append(kstore.Record(value=b"v"), ack="buffered").base_offset == 0  # type: ignore[arg-type]
        assert [warning.filename for warning in caught] == [__file__]
        with pytest.raises(ValueError, match="written, flushed"):
            log.append(kstore.Record(value=b"v"), ack="soon")  # type: ignore[arg-type]
    with kstore.open_store(root) as store:
        assert [record.value for record in store.log("levels").read()] == [b"v"]
