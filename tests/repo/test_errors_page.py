"""Goal: docs/errors.md lists exactly the error classes that users can catch, each below its base, with its attributes.
Method: the nested list of the page against the classes of kstore.errors; their attributes are read with ast."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator

import kstore
from kstore import errors
from tests.reference.kafka_errors import kafka_errors
from tests.repo.snippets import ROOT

CLASSES = {
    name: kind
    for name, kind in vars(errors).items()
    if inspect.isclass(kind) and issubclass(kind, errors.KStoreError) and not name.startswith("_")
}
TREES = {node.name: node for node in ast.walk(ast.parse(inspect.getsource(errors))) if isinstance(node, ast.ClassDef)}
PAGE = ROOT / "docs" / "errors.md"
CODE = re.compile(r"^\| `(\w+)` \| (-?\d+) \| `(\w+)` \|$", re.MULTILINE)
ITEM = re.compile(r"^( *)- `(\w+)`: (.*(?:\n +(?![ -]).*)*)", re.MULTILINE)


def listed() -> Iterator[tuple[str, str | None, str]]:
    """Yield each class of the page, the one that it stands below, and its text."""
    above: list[tuple[int, str]] = []
    for indent, name, text in ITEM.findall(PAGE.read_text()):
        while above and above[-1][0] >= len(indent):
            above.pop()
        yield name, above[-1][1] if above else None, text
        above.append((len(indent), name))


def base_of(kind: type) -> str | None:
    """Return the name of the first public error class that a class derives from."""
    return next((base.__name__ for base in kind.__mro__[1:] if base.__name__ in CLASSES), None)


def attributes_of(kind: type) -> set[str]:
    """Return the attributes that a class adds: those that __init__ sets, properties, and values of the class."""
    stored = {
        name.attr
        for name in ast.walk(TREES[kind.__name__])
        if isinstance(name, ast.Attribute) and isinstance(name.ctx, ast.Store) and ast.unparse(name.value) == "self"
    }
    own = {name for name, value in vars(kind).items() if not name.startswith("_") and not inspect.isfunction(value)}
    # A table has the codes.
    return stored | own - {"kafka_code"}


def test_page_lists_each_error_class_once_below_its_base() -> None:
    names = [name for name, _, _ in listed()]
    assert sorted(names) == sorted(CLASSES)
    assert {name: above for name, above, _ in listed()} == {name: base_of(kind) for name, kind in CLASSES.items()}


def test_each_error_class_can_be_imported_from_kstore() -> None:
    assert sorted(CLASSES.keys() - set(kstore.__all__)) == []


def test_page_names_the_attributes_of_each_error_class() -> None:
    wrong = []
    for name, _, text in listed():
        missing = attributes_of(CLASSES[name]) - set(re.findall(r"`(\w+)`", text))
        wrong += [f"{name}: {attribute}" for attribute in sorted(missing)]
    assert wrong == []


def test_page_has_the_code_of_each_class_that_has_another_one_than_the_class_above() -> None:
    names = {error.code: error.name for error in kafka_errors()}
    found = {kind: (int(code), name) for kind, code, name in CODE.findall(PAGE.read_text())}
    assert found == {
        name: (kind.kafka_code, names[kind.kafka_code])
        for name, kind in CLASSES.items()
        if vars(kind).get("kafka_code")
    }
