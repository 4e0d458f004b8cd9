"""Goal: the layers of docs/design.md, the one door to the operating system, and the size limits hold.
Method: read every source with ast (tokens for Cython) and compare with the tables below; nothing is imported."""

from __future__ import annotations

import ast
import io
import keyword
import re
import tokenize
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from tests.making.collecting import over
from tests.repo.structure import arrows_of, packages, structure_of

pytestmark = pytest.mark.build

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "kstore"

LAYERS = {
    "errors": 0,
    "types": 1,
    "config": 1,
    "serializers": 1,
    "naming": 1,
    "waiting": 1,
    "_deprecated": 1,
    "_html": 1,
    "_lazy": 1,
    "_progress": 1,
    "_core": 2,
    "wire": 2,
    "compression": 3,
    "env": 3,
    "record": 4,
    "coordinator": 5,
    "log": 6,
    "producer": 6,
    "tier": 7,
    "store": 8,
    "adoption": 9,
    "consumer": 9,
    "values": 9,
    "aio": 10,
    "arrow": 10,
    "reporting": 10,
    "serve": 10,
    "staging": 10,
    "archive": 11,
    "replaying": 11,
    "testing": 11,
    "spark": 12,
    "cli": 12,
    "__init__": 13,
    "__main__": 13,
    "pyspark_kstore": 13,
}
# Inside of these packages: each wing or module imports only from those to its left, and a wing is free of circles.
WINGS = {
    "log": (
        "damage, read_ahead < files < damaged < segment < state, plan < recovery, scan, source"
        " < reads, sound_scan, cleaning < following, skipping < directory_source < log < verify, write"
    ),
    "env": (
        "base, cache, process < files, filesystems, watching < http, env < opened, local < remote < choosing, objects"
        " < tiered"
    ),
    "wire": (
        "codes, protocol, requests, responses < schema < classes, source < decoder, encoder, messages < compiler"
        " < frames"
    ),
    "coordinator": "producer_ids, store < places < group < transaction",
    "producer": (
        "cluster, store < partitioner < batches < interceptors, metrics, sink < append_columns < config < transactions"
        " < sending < producer"
    ),
    "tier": (
        "chunks, keys, lineage < manifest, streaming < objects < listing < events, stored < files < opening, verify"
    ),
    "store": (
        "metadata < settings < upkeep, table < writer < opening, root < logs < topics < store < checks, transactions"
    ),
    "arrow": "columns, frames < assembler < decoding < log_batches, scans, packing",
    "values": (
        "decoded, registry < sources, header_ids, plain < primitives, providers, reading < avro, json_format, protobuf"
        " < formats < conversion, typed"
    ),
    "consumer": "config < consumer, groups",
    "aio": "futures < producer, consumer",
    "reporting": "statistics, units < walk < collecting < charts < sections < page < report",
    "serve": (
        "config, metrics, news, refusals < security < calls, sending < faults, coordination, settings"
        " < broker, connection < answers < apis < server"
    ),
    "testing": "topics < server < plugin",
    "staging": "area < sink, committed < commit < preparing",
    "adoption": "features, records, report, scan, settings < cluster, roots < topics < plan < writing < run, changes",
    "archive": (
        "manifest, restoring < options < parts, files, typed < target < objects, columns, plan < batches, segments"
        " < tasks, tables < run"
    ),
    "replaying": ("cluster, pace < wanted < state < flow < arrived, offsets, sending < preparation < run"),
}
MAX_MODULES = 12
# (importing file, imported room): each is named in docs/design.md.
UPWARD_IMPORTS = {
    ("kstore/log/following/follower.py", "arrow"),
    ("kstore/log/log.py", "arrow"),
    ("kstore/producer/append_columns.py", "arrow"),
}

OPERATING_SYSTEM = {"fcntl", "mmap", "os", "pathlib", "shutil", "stat", "tempfile"}
OPERATING_SYSTEM_FILES = {f"kstore/env/{name}.py" for name in ("base", "files", "local", "process", "watching")}
# They answer when a command is typed; kstore.env takes longer to import than that may take.
OPERATING_SYSTEM_FILES |= {f"kstore/cli/shell/{name}.py" for name in ("completion", "quick", "words")}
PYARROW_FS_FILES = {"kstore/env/filesystems.py"}
# Besides those; it times the conversion of a batch, as Kafka's RecordValidationStats does.
CLOCK_FILES = {"kstore/record/conversion.py"}

MAX_FILE_LINES = 900  # an alarm, not a target: a file is one idea
MAX_FUNCTION_LINES = 70
MAX_SETUP_LINES = 60
TREES = ("kstore", "pyspark_kstore", "tests", "bench", "examples")


@cache
def parsed(path: Path) -> ast.Module:
    """Return a file's tree, which several tests read and none changes."""
    return ast.parse(path.read_text(), relative(path))


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def tree_of(path: Path) -> str:
    """Return the tree that holds a file, by which its checks are grouped."""
    return relative(path).partition("/")[0]


def sources(*suffixes: str, trees: tuple[str, ...] = ("kstore", "pyspark_kstore")) -> list[Path]:
    return sorted(
        path
        for tree in trees
        for path in (ROOT / tree).rglob("*")
        if path.suffix in suffixes and not any(part.startswith(".") for part in path.relative_to(ROOT).parts)
    )


def core_parts() -> list[Path]:
    """Return the included parts in the umbrella's order."""
    umbrella = (PACKAGE / "_core.pyx").read_text()
    return [PACKAGE / name for name in re.findall(r'^include "(.+)"$', umbrella, re.MULTILINE)]


def room(path: Path) -> str:
    """Return the key of LAYERS to which a source belongs."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    if parts[0] == "pyspark_kstore":
        return "pyspark_kstore"
    return "_core" if parts[1] in {"_core", "core"} else parts[1]


def imported_modules(tree: ast.AST) -> list[tuple[str, int, bool]]:
    """Return (dotted name, line, at module level) of every import, also of the names taken from a package."""
    found = []
    ahead: list[tuple[ast.AST, bool]] = [(tree, True)]
    while ahead:
        node, is_outside = ahead.pop()
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno, is_outside) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"relative import at line {node.lineno}"
            module = node.module or ""
            names = [f"{module}.{alias.name}" for alias in node.names] if module == "kstore" else [module]
            found += [(name, node.lineno, is_outside) for name in names]
        elif not isinstance(node, ast.expr):
            is_outside = is_outside and not isinstance(node, FUNCTIONS)
            ahead += [(child, is_outside) for child in ast.iter_child_nodes(node)]
    return found


FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def cython_imports(path: Path) -> list[tuple[str, int, bool]]:
    pattern = re.compile(r"^\s*(?:from|import)\s+(kstore[\w.]*)")
    lines = enumerate(path.read_text().splitlines(), 1)
    return [(match[1], number, True) for number, line in lines if (match := pattern.match(line))]


@cache
def imports_of(path: Path) -> list[tuple[str, int, bool]]:
    if path.suffix in {".pyx", ".pxi"}:
        return cython_imports(path)
    return imported_modules(parsed(path))


def imported_room(module: str) -> str | None:
    """Return the key of LAYERS of an import, None for one from outside."""
    parts = module.split(".")
    if parts[0] != "kstore":
        return "pyspark_kstore" if parts[0] == "pyspark_kstore" else None
    if len(parts) == 1:
        return "__init__"
    name = parts[1]
    return name if name in LAYERS else "__init__"


PYTHON_SOURCES = sources(".py", ".pyi")
ALL_SOURCES = sources(".py", ".pyi", ".pyx", ".pxi")


@over("path", ALL_SOURCES, by=tree_of, label=relative)
def test_module_imports_only_from_layers_below_its_own(path: Path) -> None:
    own = room(path)
    wrong = []
    for module, line, _ in imports_of(path):
        other = imported_room(module)
        if other is None or other == own or (relative(path), other) in UPWARD_IMPORTS:
            continue
        if LAYERS[other] >= LAYERS[own]:
            wrong.append(f"{relative(path)}:{line} ({own}) imports {module} ({other})")
    assert not wrong


def floors(package: str) -> dict[str, int]:
    """Return the floor of each wing and module of a package."""
    return {name.strip(): floor for floor, names in enumerate(WINGS[package].split("<")) for name in names.split(",")}


@pytest.mark.parametrize("package", WINGS)
def test_wing_imports_only_from_wings_below_it(package: str) -> None:
    floor_of = floors(package)
    prefix = f"kstore.{package}."
    wrong = []
    for name, targets in arrows_of(f"kstore.{package}").items():
        own = name.removeprefix(prefix).split(".")[0]
        others = {target.removeprefix(prefix).split(".")[0] for target in targets} - {own}
        wrong += [f"{name} imports {other}" for other in others if floor_of[other] >= floor_of[own]]
    assert not wrong
    assert {name.removeprefix(prefix).split(".")[0] for name in arrows_of(f"kstore.{package}")} == floor_of.keys()


@pytest.mark.parametrize("package", packages())
def test_no_modules_import_each_other(package: str) -> None:
    assert not structure_of(package).circles


def module_folders() -> list[Path]:
    """Return every folder of kstore that holds Python modules."""
    return sorted({path.parent for path in PACKAGE.rglob("*.py")})


@over("folder", module_folders(), by=tree_of, label=relative)
def test_no_folder_is_crowded(folder: Path) -> None:
    modules = [path.name for path in sorted(folder.glob("*.py")) if path.name != "__init__.py"]
    assert len(modules) <= MAX_MODULES, modules


@pytest.mark.parametrize("entry", sorted(UPWARD_IMPORTS), ids=lambda entry: f"{entry[0]}-{entry[1]}")
def test_named_exception_is_used_and_only_inside_a_function(entry: tuple[str, str]) -> None:
    name, other = entry
    guarded = type_checking_lines(parsed(ROOT / name))
    places = [
        at_top
        for module, line, at_top in imports_of(ROOT / name)
        if imported_room(module) == other and line not in guarded
    ]
    assert places == [False] * len(places)
    assert places


def test_every_room_has_a_layer() -> None:
    assert {room(path) for path in ALL_SOURCES} <= set(LAYERS)


@over("path", [p for p in PYTHON_SOURCES if relative(p) not in OPERATING_SYSTEM_FILES], by=tree_of, label=relative)
def test_only_named_files_touch_the_operating_system(path: Path) -> None:
    tree = parsed(path)
    modules = {module.split(".")[0] for module, _, _ in imported_modules(tree)}
    opened = [
        n.lineno for n in ast.walk(tree) if isinstance(n, ast.Call) and ast.unparse(n.func) in {"open", "io.open"}
    ]
    assert not modules & (OPERATING_SYSTEM if relative(path) in CLOCK_FILES else OPERATING_SYSTEM | {"time"})
    assert not opened


@over("path", PYTHON_SOURCES, by=tree_of, label=relative)
def test_only_spark_imports_pyspark(path: Path) -> None:
    if room(path) not in {"spark", "pyspark_kstore"}:
        assert "pyspark" not in {module.split(".")[0] for module, _, _ in imports_of(path)}


@over("path", PYTHON_SOURCES, by=tree_of, label=relative)
def test_only_arrow_and_values_import_pyarrow_at_module_level(path: Path) -> None:
    if room(path) not in {"arrow", "values"}:
        guarded = type_checking_lines(parsed(path))
        imports = imports_of(path)
        assert not [ln for name, ln, top in imports if name.split(".")[0] == "pyarrow" and top and ln not in guarded]


@over("path", PYTHON_SOURCES, by=tree_of, label=relative)
def test_only_named_files_use_file_systems_of_pyarrow(path: Path) -> None:
    modules = {module for module, _, _ in imports_of(path)}
    uses = any(module.startswith(("pyarrow.fs", "fsspec")) for module in modules)
    assert uses == (relative(path) in PYARROW_FS_FILES)


@over("path", PYTHON_SOURCES, by=tree_of, label=relative)
def test_only_one_module_asks_for_the_scheme_of_a_path(path: Path) -> None:
    if not relative(path).startswith("kstore/env/"):
        texts = [node.value for node in ast.walk(parsed(path)) if isinstance(node, ast.Constant)]
        assert not [text for text in texts if isinstance(text, str) and text.endswith("://")]


def type_checking_lines(tree: ast.AST) -> set[int]:
    """Return the lines under `if TYPE_CHECKING:`, which never run."""
    guards = [n for n in ast.walk(tree) if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING"]
    return {line for node in guards for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}


def cython_tokens(text: str) -> list[tokenize.TokenInfo]:
    return list(tokenize.generate_tokens(io.StringIO(text).readline))


def names_defined(text: str) -> set[str]:
    """Return the names that a part puts into the core's one namespace."""
    defined = set(re.findall(r"^(?:cdef|cpdef|def|ctypedef)\b[^\n=(]*?(\w+)\s*\(", text, re.MULTILINE))
    defined |= set(re.findall(r"^(?:cdef |ctypedef )?(?:class|struct|enum|union)\s+(\w+)", text, re.MULTILINE))
    defined |= set(re.findall(r"^(?:cdef [^\n=(]*?)?(\w+)(?:\s*:[^\n=]*)?\s*=[^=]", text, re.MULTILINE))
    for block in re.findall(r"^(?:cdef |ctypedef )enum[^\n]*:\n((?:[ \t]+[^\n]*\n|\n)+)", text, re.MULTILINE):
        defined |= set(re.findall(r"^[ \t]+([A-Za-z_]\w*)\s*(?:=|,|$|#)", block, re.MULTILINE))
    return {name for name in defined if not keyword.iskeyword(name)}


def names_used(text: str) -> dict[str, int]:
    """Return each name that is used bare (not as an attribute) and the first line that does."""
    used: dict[str, int] = {}
    previous = ""
    for token in cython_tokens(text):
        if token.type == tokenize.NAME and previous != ".":
            used.setdefault(token.string, token.start[0])
        previous = token.string
    return used


def test_core_part_uses_no_name_of_a_later_part() -> None:
    parts = core_parts()
    defined = {part: names_defined(part.read_text()) for part in parts}
    wrong = []
    for place, part in enumerate(parts):
        used = names_used(part.read_text())
        for later in parts[place + 1 :]:
            names = sorted((defined[later] - defined[part]) & used.keys())
            wrong += [f"{part.name}:{used[name]} uses {name} of {later.name}" for name in names]
    assert not wrong


def test_core_parts_define_no_name_twice() -> None:
    owners: dict[str, list[str]] = {}
    for part in core_parts():
        for name in names_defined(part.read_text()):
            owners.setdefault(name, []).append(part.name)
    assert not {name: parts for name, parts in owners.items() if len(parts) > 1}


def test_umbrella_includes_every_part() -> None:
    assert sorted(core_parts()) == sorted((PACKAGE / "core").rglob("*.pxi"))


def rules_of_design() -> list[tuple[str, str, str]]:
    """Return the rows of the table "Where is the rule": rule, places, tests."""
    section = (
        (ROOT / "docs" / "design.md").read_text().partition("\n## 2. Where is the rule\n")[2].partition("\n## ")[0]
    )
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| ")]
    return [(rule.strip(), places, tests) for rule, places, tests in rows[1:]]


def test_design_has_a_table_of_rules() -> None:
    assert len(rules_of_design()) > 5


def test_map_of_design_has_each_package_in_its_layer() -> None:
    section = (ROOT / "docs" / "design.md").read_text().partition("\n## 1. Map\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (\d+) \| ([^|]+) \|", section, re.MULTILINE)
    mapped = {name: int(layer) for layer, names in rows for name in re.findall(r"`(\w+)`", names)}
    assert mapped == {name: layer for name, layer in LAYERS.items() if not name.startswith("__")}


@over("rule, places, tests", rules_of_design(), by=lambda _: "docs/design.md", label=lambda row: row[0])
def test_rule_is_where_the_design_says(rule: str, places: str, tests: str) -> None:
    found = re.findall(r"`(kstore/[\w./]+)`(?:: `(\w+)`)?", places)
    assert found, rule
    for path, name in found:
        text = (ROOT / path).read_text()
        assert not name or re.search(rf"^\s*(?:cdef|def|class)\b[^\n=]*\b{name}\b", text, re.MULTILINE), (path, name)
    paths = re.findall(r"`(tests/[\w./]+)`", tests)
    assert paths, rule
    assert [path for path in paths if not (ROOT / path).is_file()] == []


@pytest.mark.parametrize("package", WINGS)
def test_page_of_internals_lists_the_modules_of_a_package(package: str) -> None:
    pages = "\n".join(path.read_text() for path in sorted((ROOT / "docs" / "internals").glob("*.md")))
    (tree,) = re.findall(rf"^    {package}/ .*\n((?:      .*\n)+)", pages, re.MULTILINE)
    heads = re.findall(r"^ +((?:\w+(?:\.py|/)(?:, )?)+)", tree, re.MULTILINE)
    names = [re.sub(r"\.py$|/$", "", name) for head in heads for name in head.split(", ")]
    assert sorted(names) == sorted(floors(package))


def cython_functions(text: str) -> list[tuple[str, int]]:
    """Return (name, lines) of every function of a Cython source, nested ones counted in their outer one too."""
    lines = text.splitlines()
    found = []
    for start, line in enumerate(lines):
        match = re.match(r"(\s*)(?:cdef(?! class)|cpdef|def)\b[^=]*?(\w+)\(", line)
        if not match:
            continue
        end = start
        while (head := "".join(lines[start : end + 1])).count("(") > head.count(")"):
            end += 1
        for number in range(end + 1, len(lines)):
            body = lines[number]
            if body.strip() and len(body) - len(body.lstrip()) <= len(match[1]):
                break
            end = number if body.strip() else end
        found.append((match[2], end - start + 1))
    return found


def python_functions(tree: ast.AST) -> list[tuple[str, int]]:
    nodes = [node for node in ast.walk(tree) if isinstance(node, FUNCTIONS)]
    return [(node.name, (node.end_lineno or node.lineno) - node.lineno + 1) for node in nodes]


LIMITED_SOURCES = [*sources(".py", ".pyi", ".pyx", ".pxi", trees=TREES), ROOT / "setup.py"]


@over("path", LIMITED_SOURCES, by=tree_of, label=relative)
def test_file_and_its_functions_are_short(path: Path) -> None:
    text = path.read_text()
    limit = MAX_SETUP_LINES + 1 if path.name == "setup.py" else MAX_FILE_LINES
    if path.suffix == ".pyi":  # one stub for the whole core
        return
    functions = cython_functions(text) if path.suffix in {".pyx", ".pxi"} else python_functions(parsed(path))
    assert len(text.splitlines()) < limit
    assert not [(name, lines) for name, lines in functions if lines >= MAX_FUNCTION_LINES]


def adjacent_integers(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """Return the pairs of neighbouring positional parameters that are both plain int."""
    arguments = [*function.args.posonlyargs, *function.args.args]
    plain = [(a.arg, ast.unparse(a.annotation) if a.annotation else "") for a in arguments]
    return [f"{x}, {y}" for (x, kind), (y, other) in pairwise(plain) if kind == other == "int"]


# Promised to users in this form: a fetch names where and how much, a pool how much and of what size, as Kafka's do.
PROMISED = {"Log.fetch", "Log.fetch_range", "PublishedLog.fetch", "BufferPool.__init__", "BufferPoolCore.__init__"}
# seek() is called as that of any Python file.
POSITIONAL_INTEGERS = {*PROMISED, "_RawInput.seek"}


@over("path", PYTHON_SOURCES, by=tree_of, label=relative)
def test_two_integers_never_stand_side_by_side(path: Path) -> None:
    wrong = []
    tree = parsed(path)
    classes = {id(item): node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for item in node.body}
    for node in ast.walk(tree):
        if isinstance(node, FUNCTIONS):
            name = f"{classes[id(node)]}.{node.name}" if id(node) in classes else node.name
            if name not in POSITIONAL_INTEGERS:
                wrong += [f"{relative(path)}:{node.lineno} {name}({pair})" for pair in adjacent_integers(node)]
    assert not wrong


def test_names_of_a_cython_part_are_read_right() -> None:
    text = (
        "cdef enum:\n    OVERHEAD = 61\n    SIZE\n\ncdef enum Status:\n    OK = 0\n\nDEFAULT = 3\n"
        "cdef inline int leaf(const uint8_t* data, Py_ssize_t size) noexcept nogil:\n    local = other_part(data)\n"
        "    return self.attribute\n\n@cython.final\ncdef class Walk:\n    cdef int inner\n    def method(self): pass\n"
    )
    assert names_defined(text) == {"OVERHEAD", "SIZE", "Status", "OK", "DEFAULT", "leaf", "Walk"}
    assert "other_part" in names_used(text)
    assert "attribute" not in names_used(text)
    assert dict(cython_functions(text)) == {"leaf": 3, "method": 1}
