"""The columns of JSON values: an Arrow type as a tree of nodes, their layout for the core, and what they take."""

from __future__ import annotations

import base64
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from kstore._core import JSON_NODES, VALUE_LAYOUTS, JsonProgram, ValueColumns
from kstore.errors import InvalidSchemaError
from kstore.values.decoded import MOST_COLUMN_DEPTH, MOST_COLUMNS, Wanted

# Of a field that no other type can hold: the text of its JSON. pyarrow has the type from 19 on.
TEXT = pa.json_(pa.string()) if hasattr(pa, "json_") else pa.string()
_PREFIX = "arrow:"
_UNWANTED = -1
_NUMBERS: dict[pa.DataType, tuple[str, int]] = {
    pa.int8(): ("int", 1),
    pa.int16(): ("int", 2),
    pa.int32(): ("int", 4),
    pa.int64(): ("int", 8),
    pa.uint8(): ("uint", 1),
    pa.uint16(): ("uint", 2),
    pa.uint32(): ("uint", 4),
    pa.uint64(): ("uint", 8),
    pa.float32(): ("double", 4),
    pa.float64(): ("double", 8),
    pa.date32(): ("int", 4),
}


@dataclass(slots=True, eq=False)
class _Column:
    """A column of the core. number: its place in the layout, _UNWANTED for one that is not stored."""

    layout: str
    width: int = 0
    children: list[_Column] = field(default_factory=list)
    number: int = _UNWANTED


@dataclass(slots=True, eq=False)
class Node:
    """A type in the tree of those that a value has.

    arrow_type: what is wanted of it; column: None if nothing is. name: what its parent calls it; path: of the field,
    for messages.
    """

    kind: str
    arrow_type: pa.DataType
    path: str
    name: str = ""
    size: int = 0
    column: _Column | None = None
    children: list[Node] = field(default_factory=list)


def text_of_type(arrow_type: pa.DataType) -> str:
    """Return a type as text, which type_of_text reads."""
    return _PREFIX + base64.b64encode(pa.schema([pa.field("value", arrow_type)]).serialize()).decode()


def is_text_of_type(text: str) -> bool:
    """Whether a text is meant for type_of_text."""
    return text.startswith(_PREFIX)


def type_of_text(text: str) -> pa.DataType:
    """Return the type of a text of text_of_type.  Raises: InvalidSchemaError."""
    try:
        data = base64.b64decode(text.removeprefix(_PREFIX), validate=True)
        return pa.ipc.read_schema(pa.BufferReader(data)).field(0).type
    except (ValueError, IndexError, OSError, pa.ArrowException) as error:
        raise InvalidSchemaError(f"the text of a schema of Arrow is damaged: {error}") from error


def nodes_of(arrow_type: pa.DataType, wanted: Wanted = None) -> Node:
    """Return the root of the nodes of a type.

    Args: wanted: the fields that are stored; values of the others are only checked.
    Raises: InvalidSchemaError for a type that JSON does not become, or fields that are not there; ModuleNotFoundError
        for a pyarrow without pa.json_().
    """
    if not hasattr(pa, "json_"):
        raise ModuleNotFoundError(
            f"the format json needs pyarrow 19 or newer, found {pa.__version__}: pip install 'pyarrow>=19'"
        )
    nodes = _Nodes()
    root = nodes.node(arrow_type, wanted, "", is_wanted=True)
    if root.column is not None:
        for number, column in enumerate(_columns_in_order(root.column)):
            column.number = number
    return root


def layout_of(root: Node) -> list[tuple[int, int, int, int]]:
    """Return the layout of ValueColumns for nodes."""
    columns = [] if root.column is None else list(_columns_in_order(root.column))
    return [
        (VALUE_LAYOUTS[each.layout], each.width, each.children[0].number if each.children else 0, len(each.children))
        for each in columns
    ]


def in_order(root: Node) -> list[Node]:
    """Return nodes by number: the children of each stand together, after it."""
    ordered, waiting = [], deque([root])
    while waiting:
        node = waiting.popleft()
        ordered.append(node)
        waiting.extend(node.children)
    return ordered


def program_of(root: Node, columns: ValueColumns) -> JsonProgram:
    """Return what reads values into columns.  Raises: MemoryError."""
    names, listed, first = bytearray(), [], 1
    for node in in_order(root):
        name = node.name.encode()
        column = _UNWANTED if node.column is None else node.column.number
        listed.append((JSON_NODES[node.kind], column, first, len(node.children), node.size, len(names), len(name)))
        names += name
        first += len(node.children)
    return JsonProgram(columns, listed, bytes(names))


def _columns_in_order(root: _Column) -> Iterator[_Column]:
    waiting = deque([root])
    while waiting:
        column = waiting.popleft()
        yield column
        waiting.extend(column.children)


class _Nodes:
    """Makes nodes, of which there is a limit."""

    def __init__(self) -> None:
        self._count = 0
        self._depth = 0

    def node(self, arrow_type: pa.DataType, wanted: Wanted, path: str, *, is_wanted: bool) -> Node:
        """Return the node of a type, with those below it.  Raises: InvalidSchemaError."""
        self._count += 1
        self._depth += 2 if pa.types.is_map(arrow_type) else 1
        if self._count > MOST_COLUMNS or self._depth > MOST_COLUMN_DEPTH:
            raise InvalidSchemaError(
                f"field {path or 'value'!r} of the schema of JSON: there may be {MOST_COLUMNS} columns, nested "
                f"{MOST_COLUMN_DEPTH} deep, and the schema has more"
            )
        node = self._of(arrow_type, wanted, path, is_wanted=is_wanted)
        self._depth -= 2 if pa.types.is_map(arrow_type) else 1
        return node

    def _of(self, arrow_type: pa.DataType, wanted: Wanted, path: str, *, is_wanted: bool) -> Node:
        kinds = pa.types
        if kinds.is_struct(arrow_type):
            return self._struct(arrow_type, wanted, path, is_wanted=is_wanted)
        if kinds.is_list(arrow_type):
            item = self.node(arrow_type.value_type, wanted, path, is_wanted=is_wanted)
            listed = pa.list_(pa.field(arrow_type.value_field.name, item.arrow_type))
            return Node("list", listed, path, column=_column("list", item), children=[item])
        if kinds.is_map(arrow_type) and arrow_type.key_type == pa.string():
            item = self.node(arrow_type.item_type, wanted, path, is_wanted=is_wanted)
            mapped = pa.map_(pa.string(), pa.field(arrow_type.item_field.name, item.arrow_type))
            column = None
            if item.column is not None:
                pair = _Column("struct", children=[_Column("variable"), item.column])
                column = _Column("list", children=[pair])
            return Node("map", mapped, path, column=column, children=[item])
        kind, layout, size = _scalar(arrow_type, path)
        return Node(kind, arrow_type, path, size=size, column=_Column(layout, size) if is_wanted else None)

    def _struct(self, arrow_type: pa.StructType, wanted: Wanted, path: str, *, is_wanted: bool) -> Node:
        names = [each.name for each in arrow_type]
        if len(set(names)) != len(names):
            raise InvalidSchemaError(f"field {path or 'value'!r} of the schema of JSON has a name twice: {names}")
        unknown = [] if wanted is None else sorted(wanted.keys() - set(names))
        if unknown:
            raise InvalidSchemaError(
                f"{path or 'the value'} of the schema of JSON has no field {unknown[0]!r}; it has {', '.join(names)}"
            )
        children = []
        for each in arrow_type:
            is_child_wanted = is_wanted and (wanted is None or each.name in wanted)
            inner = wanted[each.name] if is_child_wanted and wanted is not None else None
            child = self.node(each.type, inner, f"{path}.{each.name}" if path else each.name, is_wanted=is_child_wanted)
            child.name = each.name
            children.append(child)
        stored = [child for child in children if child.column is not None]
        columns = [child.column for child in stored if child.column is not None]
        return Node(
            "struct",
            pa.struct([pa.field(child.name, child.arrow_type) for child in stored]),
            path,
            column=_Column("struct", children=columns) if is_wanted else None,
            children=children,
        )


def _column(layout: str, item: Node) -> _Column | None:
    return None if item.column is None else _Column(layout, children=[item.column])


def _scalar(arrow_type: pa.DataType, path: str) -> tuple[str, str, int]:
    """Return the kind of a node, its layout, and the bytes of a number."""
    if arrow_type in _NUMBERS or pa.types.is_timestamp(arrow_type):
        kind, size = _NUMBERS.get(arrow_type, ("int", 8))
        return kind, "fixed", size
    if pa.types.is_null(arrow_type):
        return "null", "null", 0
    if pa.types.is_boolean(arrow_type):
        return "boolean", "bit", 0
    if pa.types.is_string(arrow_type):
        return "string", "variable", 0
    if arrow_type == TEXT:
        return "text", "variable", 0
    raise InvalidSchemaError(
        f"field {path or 'value'!r} of the schema of JSON is of type {arrow_type}, which JSON does not become: "
        "expected null, bool, integers, float, double, string, date32, timestamp, pa.json_(), or a struct, list or map "
        "of string of these"
    )
