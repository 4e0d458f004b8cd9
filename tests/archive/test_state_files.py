"""Goal: nothing in a state file of an export is believed: it is refused with the field, or the export is right.
Method: targets that somebody else prepared; mutants of each field of each state file, with the right checksum too."""

from __future__ import annotations

import copy
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from kstore.archive import export
from kstore.archive.manifest import MANIFEST_FILE, read_manifest
from kstore.archive.options import export_options
from kstore.archive.parts import PartResult, Work
from kstore.archive.plan import Source
from kstore.archive.run import run_export
from kstore.archive.target import STAGING_DIRECTORY, LocalTarget
from kstore.archive.tasks import Job, run_part
from kstore.config import LogConfig
from kstore.env import DEFAULT_ENV
from kstore.errors import CorruptManifestError, ExportError, KStoreError, StorageError
from kstore.log.files.json_state import CHECKSUM, FieldError, json_object, value_as, with_checksum
from kstore.staging import AppVersion, StagingArea
from tests.making.exporting import TOPIC, Row, checked_manifest, grow, rows_of_export, rows_of_source, table_of
from tests.making.staging import make_root, stage

FORMATS = ("parquet", "arrow", "kstore")
OUTSIDE = "../victim/precious"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    grow(tmp_path / "source", 40)
    return tmp_path / "source"


def victim(tmp_path: Path) -> Path:
    directory = tmp_path / "victim"
    directory.mkdir()
    (directory / "precious").write_text("precious")
    return directory


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def stop_before_the_last_part(source: Path, target: Path, format: str) -> None:
    """Leave a plan, and the results of all parts but one."""

    def run(todo: Sequence[Work], job: Job) -> Iterator[PartResult]:
        for work in todo[:-1]:
            yield run_part(work, job)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_export(Source(source, LogConfig(), DEFAULT_ENV), target, export_options(format), run, tasks=1)


def stop_in_the_commit(source: Path, target: Path, format: str) -> None:
    """Leave a plan, results and a commit that was begun."""

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalTarget, "_carry_out", stop)
        with pytest.raises(KeyboardInterrupt):
            export(source, target, format)


STATES: dict[str, tuple[Callable[[Path, Path, str], object], str]] = {
    "manifest": (export, MANIFEST_FILE),
    "plan": (stop_before_the_last_part, f"{STAGING_DIRECTORY}/plan.json"),
    "result": (stop_before_the_last_part, f"{STAGING_DIRECTORY}/part-000000.json"),
    "commit": (stop_in_the_commit, f"{STAGING_DIRECTORY}/commit.json"),
}


def rewrite(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the fields of a state file, and its checksum with them."""
    fields = json.loads(path.read_text())
    del fields[CHECKSUM]
    change(fields)
    path.write_text(json.dumps(with_checksum(fields)))


PATHS_OUT = [
    OUTSIDE,
    "../victim",
    "/etc/x",
    "a/../../victim/precious",
    "..",
    ".",
    "",
    "a//b",
    "a\\b",
    "C:x",
    "a\0b",
    "a/b/c/d",
]
CHANGES: dict[str, tuple[str, Callable[[dict[str, Any], str], object]]] = {
    "path in the manifest": ("manifest", lambda fields, path: fields["files"][0].update(path=path)),
    "staged in a result": ("result", lambda fields, path: fields["files"][0].update(staged=path)),
    "path in a result": ("result", lambda fields, path: fields["files"][0]["file"].update(path=path)),
    "move from": ("commit", lambda fields, path: fields["moves"][0].__setitem__(0, path)),
    "move to": ("commit", lambda fields, path: fields["moves"][0].__setitem__(1, path)),
    "removed": ("commit", lambda fields, path: fields.update(removed=[path])),
    "path in the manifest of a commit": ("commit", lambda f, path: f["manifest"]["files"][0].update(path=path)),
    "topic in the manifest": ("manifest", lambda fields, path: fields["partitions"][0].update(topic=path)),
    "topic in the plan": ("plan", lambda fields, path: fields["parts"][0].update(topic=path)),
    "input in the plan": ("plan", lambda fields, path: fields["parts"][0].update(inputs=[path])),
}


def part_by_names(fields: dict[str, Any]) -> None:
    """The parts of a plan as objects, which are read as lists are."""
    names = ("number", "topic", "partition", "start_offset", "end_offset")
    fields["parts"] = [dict(zip(names, part, strict=False)) for part in fields["parts"]]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("name", CHANGES)
def test_a_path_in_a_state_file_never_leads_out_of_the_target(
    source: Path, tmp_path: Path, format: str, name: str
) -> None:
    state, change = CHANGES[name]
    prepare, file = STATES[state]
    prepare(source, tmp_path / "prepared", format)
    outside = victim(tmp_path)
    for number, path in enumerate(PATHS_OUT):
        target = tmp_path / f"out-{number}"
        shutil.copytree(tmp_path / "prepared", target)
        if state == "plan":
            rewrite(target / file, part_by_names)
        rewrite(target / file, lambda fields, path=path: change(fields, path))
        before = contents(target)
        with pytest.raises(CorruptManifestError, match=r"below the directory|name of a topic") as caught:
            export(source, target, format)
        assert caught.value.path == str(target / file)
        assert contents(target).items() >= before.items()
        assert contents(outside) == {"precious": b"precious"}


@pytest.mark.parametrize("format", FORMATS)
def test_a_link_in_the_target_is_not_followed(source: Path, tmp_path: Path, format: str) -> None:
    outside, target = victim(tmp_path), tmp_path / "out"
    target.mkdir()
    (target / STAGING_DIRECTORY).symlink_to(outside)
    with pytest.raises(ExportError, match=f"{STAGING_DIRECTORY} is no directory of the export"):
        export(source, target, format)
    (target / STAGING_DIRECTORY).unlink()
    export(source, target, format)
    directory = next(path for path in target.iterdir() if path.is_dir())
    shutil.copytree(directory, tmp_path / "copy")
    shutil.rmtree(directory)
    directory.symlink_to(outside)
    grow(source, 40)
    for _ in range(2):
        with pytest.raises(ExportError, match=f"{directory.name} is no directory of the export"):
            export(source, target, format)
    assert contents(outside) == {"precious": b"precious"}
    directory.unlink()
    shutil.copytree(tmp_path / "copy", directory)
    export(source, target, format)
    assert rows_of_export(target) == rows_of_source(source)


def test_a_staging_area_that_is_a_link_is_not_collected(tmp_path: Path) -> None:
    root, outside = make_root(tmp_path / "root"), victim(tmp_path)
    stage(root, AppVersion("dead", 1), [(0, b"a")])
    area = StagingArea(root)
    shutil.move(area.path, tmp_path / "moved")
    (outside / "dead.1").mkdir()
    os.utime(outside / "dead.1", (1, 1))
    Path(area.path).symlink_to(outside)
    with pytest.raises(StorageError, match="expected a directory, found a link"):
        area.collect()
    with pytest.raises(StorageError, match="expected a directory, found a link"):
        area.remove_versions_below("dead", 2)
    assert (outside / "dead.1").is_dir()


# Every field, changed in every way

DROP, TWICE = object(), object()


def places_of(value: object, place: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the place of each value in JSON, lists by their first and last item."""
    if place:
        yield place
    items: Iterator[tuple[str | int, object]] = iter(())
    if isinstance(value, dict):
        items = iter(value.items())
    elif isinstance(value, list) and value:
        items = iter({at: value[at] for at in (0, len(value) - 1)}.items())
    for name, item in items:
        yield from places_of(item, (*place, name))


def others_than(value: object) -> Iterator[object]:
    """Yield what may stand in place of a value."""
    yield from (DROP, None, [], {}, "x", "", -1, 2**63, 1.5, True, [None], {"x": 1})
    if type(value) is int:
        yield from (value + 1, value - 1, value + 3, value - 3, value + 2**32, str(value))
    if isinstance(value, str):
        yield from (value + "x", value[:-1], value.upper(), "\ud800")
    if isinstance(value, list) and value:
        yield from (value[:-1], value[1:], [*value, value[0]], value[::-1])


def mutants_of(fields: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for place in places_of(fields):
        if place == (CHECKSUM,):
            continue
        holder: Any = fields
        for name in place[:-1]:
            holder = holder[name]
        for other in others_than(holder[place[-1]]):
            if type(other) is type(holder[place[-1]]) and other == holder[place[-1]]:
                continue
            mutant = copy.deepcopy(fields)
            at: Any = mutant
            for name in place[:-1]:
                at = at[name]
            if other is DROP:
                del at[place[-1]]
            else:
                at[place[-1]] = other
            yield f"{'.'.join(map(str, place))} = {'nothing' if other is DROP else repr(other)[:40]}", mutant


def is_said_nowhere_else(name: str, state: str, format: str) -> bool:
    """Whether a mutant is of what one state file alone says, for which its checksum speaks: where an export begins,
    which parts a run has, and which files of rows a part has become.
    """
    if state == "result" and format != "kstore":
        return re.match(r"files(\.\d+)? = (nothing|\[)", name) is not None
    if state == "plan" and re.match(r"parts = \[|parts\.\d+ = nothing", name):
        return True
    return state != "manifest" and ".start_offset = " in name


def check_mutants(tmp_path: Path, format: str, state: str, *, stride: int) -> int:
    """Export over mutants of a state file; return how many there were."""
    source = tmp_path / f"source-{format}-{state}"
    grow(source, 20)
    prepare, file = STATES[state]
    prepared = tmp_path / f"prepared-{format}-{state}"
    prepare(source, prepared, format)
    grow(source, 20)
    expected = rows_of_source(source)
    fields = json.loads((prepared / file).read_text())
    del fields[CHECKSUM]
    target, count = tmp_path / "out", 0
    for number, (name, mutant) in enumerate(mutants_of(fields)):
        if number % stride or is_said_nowhere_else(name, state, format):
            continue
        count += 1
        # A manifest of an earlier version has none.
        has_checksum = state != "manifest" or number % 2
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(prepared, target)
        (target / file).write_text(json.dumps(with_checksum(mutant) if has_checksum else mutant))
        try:
            summary = export(source, target, format)
        except KStoreError:
            continue
        assert rows_of_files(target) == expected, f"{format} {state}: {name}"
        # A right checksum proves the other numbers; of segments no count is in a footer.
        if not has_checksum and format != "kstore":
            assert summary.record_count == len(rows_of_export(target)), f"{state}: {name}"
    return count


def rows_of_files(target: Path) -> list[Row]:
    """Return the rows of all files that the manifest lists, each as often as it is there."""
    manifest = read_manifest(target)
    assert manifest is not None
    if manifest.format == "kstore":
        return rows_of_source(target)
    rows = []
    for file in manifest.files:
        columns = table_of(target / file.path).select(["partition", "offset", "value"]).to_pydict()
        rows += [Row(TOPIC, *row) for row in zip(*columns.values(), strict=True)]
    return sorted(rows)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("format", FORMATS)
def test_a_mutant_of_a_state_file_is_refused_or_makes_no_difference(tmp_path: Path, format: str, state: str) -> None:
    assert check_mutants(tmp_path, format, state, stride=37) > 3


@pytest.mark.long
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("format", FORMATS)
def test_every_mutant_of_a_state_file_is_refused_or_makes_no_difference(
    tmp_path: Path, format: str, state: str
) -> None:
    assert check_mutants(tmp_path, format, state, stride=1) > 100


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("shift", [-3, -1, 1, 3])
@pytest.mark.parametrize("is_sealed", [True, False])
def test_an_end_offset_that_is_not_that_of_the_files_is_refused(
    source: Path, tmp_path: Path, format: str, shift: int, is_sealed: bool
) -> None:
    target = tmp_path / "out"
    export(source, target, format)
    fields = json.loads((target / MANIFEST_FILE).read_text())
    stale = copy.deepcopy(fields)
    stale["partitions"][0]["end_offset"] += shift
    (target / MANIFEST_FILE).write_text(json.dumps(stale))
    with pytest.raises(CorruptManifestError, match="crc32c: expected"):
        export(source, target, format)
    del fields[CHECKSUM]
    fields["partitions"][0]["end_offset"] += shift
    (target / MANIFEST_FILE).write_text(json.dumps(with_checksum(fields) if is_sealed else fields))
    grow(source, 20)
    with pytest.raises(CorruptManifestError) as caught:
        export(source, target, format)
    assert caught.value.path is not None
    assert {caught.value.expected, caught.value.found} != {None}


@pytest.mark.parametrize("format", ["parquet", "arrow"])
@pytest.mark.parametrize("field", ["record_count", "first_offset", "last_offset"])
def test_numbers_of_a_manifest_without_a_checksum_are_held_to_the_files(
    source: Path, tmp_path: Path, format: str, field: str
) -> None:
    target = tmp_path / "out"
    export(source, target, format)
    fields = json.loads((target / MANIFEST_FILE).read_text())
    del fields[CHECKSUM]
    fields["files"][0][field] += -1 if field == "record_count" else 1
    if field == "record_count":
        fields["partitions"][0]["record_count"] -= 1
    else:
        fields["files"][0]["record_count"] -= 1
        fields["files"][1]["record_count"] += 1
    (target / MANIFEST_FILE).write_text(json.dumps(fields))
    with pytest.raises(CorruptManifestError, match=r"differs from the manifest|a number from"):
        export(source, target, format)


def test_a_file_that_is_no_export_is_named_with_what_the_manifest_says(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    export(source, target)
    last = checked_manifest(target).files[-1]
    (target / last.path).write_bytes(b"PAR1")
    with pytest.raises(
        CorruptManifestError, match=r"differs from the manifest: expected RowFacts\(row_count="
    ) as caught:
        export(source, target)
    assert caught.value.path == str(target / last.path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "what follows is no JSON at line 1, column 1"),
        (b"[]", "the file: expected a JSON object, found 'list'"),
        (b'{"a": 1, "a": 2}', "a: expected one value, found 'two'"),
        (b"[" * 200_000, "too many levels"),
        (b"\xff\xff", "it is no UTF-8 at byte 0"),
    ],
)
def test_what_is_no_object_is_refused(content: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        json_object(content)


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (int, True, "a number"),
        (int, 1.0, "a number"),
        (int, 2**63, "a number of 64 bits"),
        (bool, 1, "true or false"),
        (str, None, "a string"),
        (int | None, "1", "a number"),
        (tuple[int, ...], {"0": 1}, "a list"),
        (tuple[int, int], [1], "2 values"),
        (dict[str, int], [1], "an object"),
        (dict[str, int], {"a": "b"}, "a number"),
    ],
)
def test_a_value_of_another_type_is_refused(kind: Any, value: object, expected: str) -> None:
    with pytest.raises(FieldError) as caught:
        value_as(kind, value, field="f")
    assert caught.value.expected == expected
    assert cast("str", caught.value.field).startswith("f")


def test_the_checksum_is_that_of_the_fields_in_any_order() -> None:
    fields = with_checksum({"b": 1, "a": [1, "\ud800"]})
    assert with_checksum({"a": [1, "\ud800"], "b": 1})[CHECKSUM] == fields[CHECKSUM]
    assert with_checksum({"a": [1, "\ud801"], "b": 1})[CHECKSUM] != fields[CHECKSUM]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("name", ["staged in a result", "move from"])
def test_a_staged_name_is_a_single_one(source: Path, tmp_path: Path, format: str, name: str) -> None:
    state, change = CHANGES[name]
    prepare, file = STATES[state]
    target, outside = tmp_path / "out", victim(tmp_path)
    prepare(source, target, format)
    (target / STAGING_DIRECTORY / "a").symlink_to(outside)
    rewrite(target / file, lambda fields: change(fields, "a/precious"))
    with pytest.raises(CorruptManifestError, match="expected a name below the directory"):
        export(source, target, format)
    assert contents(outside) == {"precious": b"precious"}


@pytest.mark.parametrize("format", FORMATS)
def test_a_link_that_holds_no_exported_file_yet_gets_none(source: Path, tmp_path: Path, format: str) -> None:
    outside, target = victim(tmp_path), tmp_path / "out"
    (target / STAGING_DIRECTORY).mkdir(parents=True)
    (target / ("orders-0" if format == "kstore" else f"topic={TOPIC}")).symlink_to(outside)
    with pytest.raises(ExportError, match="is no directory of the export"):
        export(source, target, format)
    assert contents(outside) == {"precious": b"precious"}


@pytest.mark.parametrize("shift", [-3, -1])
def test_an_end_below_that_of_the_segments_is_refused_before_anything_changes(
    source: Path, tmp_path: Path, shift: int
) -> None:
    target = tmp_path / "out"
    export(source, target, "kstore")
    rewrite(target / MANIFEST_FILE, lambda fields: shift_end(fields, shift))
    before = contents(target)
    grow(source, 20)
    with pytest.raises(CorruptManifestError, match="expected that of its segments") as caught:
        export(source, target, "kstore")
    assert caught.value.path == str(target / MANIFEST_FILE)
    assert contents(target) == before


def shift_end(fields: dict[str, Any], shift: int) -> None:
    fields["partitions"][0]["end_offset"] += shift


@pytest.mark.parametrize("format", FORMATS)
def test_a_last_batch_that_begins_after_the_end_is_refused(source: Path, tmp_path: Path, format: str) -> None:
    target = tmp_path / "out"
    export(source, target, format)

    def move(fields: dict[str, Any]) -> None:
        one = fields["partitions"][0]
        one["last_batch"]["base_offset"] = one["end_offset"]

    rewrite(target / MANIFEST_FILE, move)
    with pytest.raises(CorruptManifestError, match=r"last_batch\.base_offset: expected a number"):
        export(source, target, format)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("is_older", [False, True], ids=["removed", "older"])
def test_a_plan_goes_on_from_no_manifest_but_its_own(source: Path, tmp_path: Path, format: str, is_older: bool) -> None:
    target = tmp_path / "out"
    older = b""
    for _ in range(2):
        older = (target / MANIFEST_FILE).read_bytes() if target.exists() else b""
        export(source, target, format)
        grow(source, 20)
    stop_before_the_last_part(source, target, format)
    if is_older:
        (target / MANIFEST_FILE).write_bytes(older)
    else:
        (target / MANIFEST_FILE).unlink()
    before = contents(target)
    with pytest.raises((CorruptManifestError, ExportError)) as caught:
        export(source, target, format)
    assert contents(target) == before
    if format != "kstore" or not is_older:
        # Segments that a manifest does not know are refused first.
        assert caught.type is CorruptManifestError
        assert caught.value.path == str(target / STAGING_DIRECTORY)


def test_a_size_or_crc_of_a_manifest_without_a_checksum_is_held_to_the_file(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    export(source, target, "parquet")
    content = (target / MANIFEST_FILE).read_text()
    for field in ("size_in_bytes", "crc32c"):
        fields = json.loads(content)
        del fields[CHECKSUM]
        fields["files"][0][field] += 1
        (target / MANIFEST_FILE).write_text(json.dumps(fields))
        with pytest.raises(CorruptManifestError, match=r"differs from the manifest: expected .* with CRC-32C"):
            export(source, target, "parquet")


def test_a_start_above_that_of_the_segments_is_refused(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    export(source, target, "kstore")
    rewrite(target / MANIFEST_FILE, lambda fields: fields["partitions"][0].update(start_offset=1))
    with pytest.raises(CorruptManifestError, match="start_offset of orders-0: expected that of its segm"):
        export(source, target, "kstore")


@pytest.mark.parametrize("state", ["manifest", "plan", "commit"])
def test_what_is_no_topic_id_is_refused(source: Path, tmp_path: Path, state: str) -> None:
    prepare, file = STATES[state]
    target = tmp_path / "out"
    prepare(source, target, "kstore")
    places = ["partitions", "manifest", "notes"] if state == "commit" else ["partitions"]
    content = (target / file).read_text()
    for place in places[-2:]:
        (target / file).write_text(content)

        def change(fields: dict[str, Any], place: str = place) -> None:
            of = {"partitions": lambda: fields["partitions"][0], "notes": lambda: fields["notes"][f"{TOPIC}-0"]}
            of["manifest"] = lambda: fields["manifest"]["partitions"][0]
            of[place]()["topic_id"] = "x"

        rewrite(target / file, change)
        with pytest.raises(CorruptManifestError, match=r"topic_id: expected an id of 22 characters"):
            export(source, target, "kstore")


def test_a_commit_that_moves_no_file_into_place_is_refused(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    stop_in_the_commit(source, target, "parquet")
    file = target / STATES["commit"][1]
    content = file.read_text()
    rewrite(file, lambda fields: fields["moves"].pop())
    with pytest.raises(CorruptManifestError, match=r"moves: expected a move to topic=orders/"):
        export(source, target, "parquet")
    file.write_text(content)
    export(source, target, "parquet")
    assert rows_of_export(target) == rows_of_source(source)


def test_a_result_without_the_segment_of_its_partition_is_refused(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "out"
    stop_before_the_last_part(source, target, "kstore")
    rewrite(target / STATES["result"][1], lambda fields: fields.update(files=[]))
    with pytest.raises(CorruptManifestError, match=r"notes\.orders-0: expected a partition with segments"):
        export(source, target, "kstore")
