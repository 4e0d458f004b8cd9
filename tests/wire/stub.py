"""`python -m tests.wire.stub`: write kstore/wire/messages.pyi, the types of all requests and answers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from kstore.wire.classes import Message, attribute
from kstore.wire.messages import message_named, tables
from kstore.wire.schema import NUMBERS, STRUCT, Field

PATH = Path(__file__).resolve().parents[2] / "kstore" / "wire" / "messages.pyi"
HEAD = '''"""Written by tests/wire/stub.py; see messages.py."""

from collections.abc import Sized
from uuid import UUID

from typing_extensions import dataclass_transform

from kstore.wire.classes import Message as _Message
from kstore.wire.protocol import TaggedField

@dataclass_transform(kw_only_default=True)
class Message(_Message):
    unknown_tagged_fields: tuple[TaggedField, ...] = ...

def tables() -> dict[str, str]: ...
def message_named(name: str) -> type[_Message]: ...
'''
TYPES = {
    **dict.fromkeys(NUMBERS, "int"),
    "float64": "float",
    "bool": "bool",
    "string": "str",
    "bytes": "bytes",
    "uuid": "UUID",
}


def type_of(field: Field, message: str) -> str:
    # What a server sends has a size; what it got is a view of the request.
    types = {**TYPES, "records": "bytes | memoryview" if message.endswith("Request") else "Sized"}
    one = f"{message}.{field.struct}" if field.kind == STRUCT else types[field.kind]
    if field.is_array:
        one = f"list[{one}]"
    is_absent = field.kind == STRUCT and not field.is_array and field.tag is not None
    return f"{one} | None" if field.nullable or is_absent else one


def stub_of(cls: type[Message], message: str, indent: str, structs: dict[str, type[Message]]) -> list[str]:
    lines = [f"{indent}class {cls.__name__}(Message):"]
    for struct in structs.values():
        lines += stub_of(struct, message, indent + "    ", {})
    lines += [f"{indent}    {attribute(field.name)}: {type_of(field, message)} = ..." for field in cls.fields]
    return lines


def text() -> str:
    lines = []
    for name in tables():
        cls = message_named(name)
        named = {key: value for key, value in vars(cls).items() if isinstance(value, type)}
        lines += ["", *stub_of(cls, name, "", named)]
    done = subprocess.run(
        [sys.executable, "-m", "ruff", "format", "-q", "--stdin-filename", str(PATH), "-"],
        input=HEAD + "\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


if __name__ == "__main__":
    PATH.write_text(text())
