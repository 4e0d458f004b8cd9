"""Schemas of Protobuf as text: that of a .proto file, or descriptors in base64."""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError

from kstore.errors import InvalidSchemaError
from kstore.values.providers import SchemaSource, file_bytes

# The name of the file that a schema is, where it has none.
MAIN_FILE = "kstore-schema.proto"
_DATA = "data:application/x-protobuf;base64,"


def text_of(source: SchemaSource) -> str:
    """Return a schema that a user gives: text of a .proto file, descriptors, or the path of a file with one of these.

    Raises: InvalidSchemaError; what reading a file raises.
    """
    if isinstance(source, (Mapping, list)):
        raise InvalidSchemaError("a schema of Protobuf is text, a descriptor set or the path of a file")
    if isinstance(source, str) and (source.startswith(_DATA) or set(source) & set(";{\n")):
        return source
    content = source if isinstance(source, bytes) else file_bytes(source)
    files = _parsed(content)
    return content.decode("utf-8", "replace") if files is None else text_of_files(files)


def text_of_files(files: Iterable[FileDescriptorProto]) -> str:
    """Return descriptors as text."""
    return _DATA + b64encode(FileDescriptorSet(file=files).SerializeToString()).decode()


def descriptors_in(text: str) -> list[FileDescriptorProto] | None:
    """Return the descriptors that a text is, the schema's own file last; None for the text of a .proto file."""
    try:
        return _parsed(b64decode(text.removeprefix(_DATA), validate=True))
    except (binascii.Error, ValueError):
        return None


def _parsed(content: bytes) -> list[FileDescriptorProto] | None:
    """Return the files of a set, or the one file."""
    for kind in (FileDescriptorSet, FileDescriptorProto):
        try:
            parsed = kind.FromString(content)
        except DecodeError:
            continue
        files = list(parsed.file) if isinstance(parsed, FileDescriptorSet) else [parsed]
        if files and all(file.name for file in files):
            return files
    return None
