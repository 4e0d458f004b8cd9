"""Texts of .proto files to descriptors, by Google's compiler, in a process of its own.

A text is of somebody else's disk: the compiler sees a directory that has it and what it imports, and nothing else; one
that it ends at, or takes too long for, is malformed.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Sequence

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from kstore.env.process import run_in_new_directory
from kstore.errors import InvalidSchemaError
from kstore.values.protobuf.known import known_files
from kstore.values.protobuf.texts import MAIN_FILE, descriptors_in
from kstore.values.providers import SchemaText

_MOST_TEXT = 1 << 20
_MOST_REASON = 500
_SECONDS = 10
_SECONDS_EACH = 0.1
# What the compiler says of itself.
_LOGGED = re.compile(r"WARNING: |[A-Z]\d{4} ")
# Compiles a file for each line of stdin, and says after each on stderr that it is done.
_COMPILER = """
import os, sys
from grpc_tools import protoc
for line in sys.stdin:
    protoc.main(line.rstrip("\\n").split("\\0"))
    os.write(2, b"\\0")
"""


def compiled(schemas: Sequence[SchemaText]) -> list[bytes | InvalidSchemaError]:
    """Return, of each schema, a serialized FileDescriptorSet of it and what it imports; or what is wrong with it.

    Raises: ModuleNotFoundError without grpcio-tools.
    """
    if importlib.util.find_spec("grpc_tools") is None:
        raise ModuleNotFoundError(
            "schemas of Protobuf as text need grpcio-tools: pip install 'kstore[protobuf]', or pass a descriptor set"
        )
    results: list[bytes | InvalidSchemaError] = []
    while len(results) < len(schemas):
        results += _compiled(schemas[len(results) :])
    return results


def _compiled(schemas: Sequence[SchemaText]) -> list[bytes | InvalidSchemaError]:
    """Return the same of the first schemas: of all, or up to one at which the compiler ended."""
    files: dict[str, bytes] = {}
    lines, problems = [], {}
    for number, schema in enumerate(schemas):
        try:
            files.update((f"{number}/{name}", text.encode()) for name, text in _texts_of(schema).items())
            files[f"{number}.known"] = FileDescriptorSet(file=_descriptors_of(schema).values()).SerializeToString()
        except InvalidSchemaError as error:
            problems[number] = error
            lines.append("protoc\0--version")
            continue
        options = f"--proto_path={number}", f"--descriptor_set_in={number}.known", f"--descriptor_set_out={number}.out"
        lines.append("\0".join(("protoc", *options, "--include_imports", MAIN_FILE)))
    run = run_in_new_directory(
        [sys.executable, "-c", _COMPILER],
        files,
        stdin="".join(f"{line}\n" for line in lines).encode(),
        made=[f"{number}.out" for number in range(len(schemas))],
        timeout_s=_SECONDS + _SECONDS_EACH * len(schemas),
    )
    *messages, rest = run.errors.decode("utf-8", "replace").split("\0")
    results: list[bytes | InvalidSchemaError] = []
    for number, message in enumerate(messages[: len(schemas)]):
        content = run.files.get(f"{number}.out")
        results.append(problems.get(number) or (_invalid(message, number) if content is None else content))
    if len(results) < len(schemas):
        reason = "the compiler took too long" if run.status is None else f"the compiler ended with {run.status}: {rest}"
        results.append(_invalid(reason, len(results)))
    return results


def _descriptors_of(schema: SchemaText) -> dict[str, FileDescriptorProto]:
    """Return the descriptors that imports may name."""
    files = dict(known_files())
    for reference in schema.references:
        for file in descriptors_in(reference.text) or ():
            file.name = reference.name
            files[reference.name] = file
    return files


def _texts_of(schema: SchemaText) -> dict[str, str]:
    """Return the texts by the names that imports have.  Raises: InvalidSchemaError."""
    texts = {each.name: each.text for each in schema.references if descriptors_in(each.text) is None}
    files = {**texts, MAIN_FILE: schema.text}
    if sum(map(len, files.values())) > _MOST_TEXT:
        raise InvalidSchemaError(f"the schema of Protobuf and its imports have more than {_MOST_TEXT} characters")
    folders = {name[: at + 1] for name in files for at in range(len(name)) if name[at] == "/"}
    for name in files:
        parts = name.split("/")
        if not name.isprintable() or "\\" in name or {"", ".", ".."} & set(parts) or f"{name}/" in folders:
            raise InvalidSchemaError(f"the schema of Protobuf imports {name[:80]!r}, which is no name of a file")
        if max(map(len, parts)) > 200 or len(name) > 1000:
            raise InvalidSchemaError(f"the schema of Protobuf imports {name[:80]!r}..., which is too long for a name")
    return files


def _invalid(message: str, number: int) -> InvalidSchemaError:
    """Return an error with the first messages of the compiler."""
    lines = [line.replace(f"{number}/", "").replace(f"{MAIN_FILE}:", "line ") for line in message.splitlines()]
    told = "; ".join(line for line in lines if line and not _LOGGED.match(line))
    return InvalidSchemaError(f"malformed schema of Protobuf: {told[:_MOST_REASON]}")
