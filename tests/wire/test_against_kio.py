"""Goal: random requests and answers have the bytes that another implementation reads and writes.
Method: kio (from Kafka's definitions too, by other code; Python 3.11 or newer), every version."""

from __future__ import annotations

import importlib
import io
import random
import sys

import pytest

if sys.version_info < (3, 11):
    pytest.skip("kio needs Python 3.11", allow_module_level=True)

from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from kstore.wire.classes import Message
from kstore.wire.compiler import codec
from kstore.wire.frames import apis
from kstore.wire.messages import message_named
from kstore.wire.schema import Field
from tests.making.collecting import over
from tests.reference.wire import Maker

TYPES = {"Request": EntityType.request, "Response": EntityType.response}
CASES = [(api.key, f"{api.name}{kind}", kind) for api in apis().values() for kind in TYPES]
# kio gives these a type of Python's that has not all numbers: errors, times, durations.
NARROW = ("rrorCode", "Ms", "imestamp", "imeoutMs")


class NarrowMaker(Maker):
    """Makes messages that kio can hold: it knows no unknown tagged fields either."""

    def message(self, cls: type[Message]) -> Message:
        message = super().message(cls)
        message.unknown_tagged_fields = ()
        return message

    def one(self, cls: type[Message], field: Field) -> object:
        if field.kind.startswith("int") and field.name.endswith(NARROW):
            return self.rng.choice((0, 1, 2, 3, 87))
        return super().one(cls, field)


def kio_class(api_key: int, version: int, kind: EntityType) -> type:
    path = schema_name_map[api_key_map[api_key]][version][kind]
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


@over("api_key, name, kind", CASES, by=lambda case: case[2], label=lambda case: case[1])
def test_message_has_the_bytes_that_kio_reads_and_writes(api_key: int, name: str, kind: str) -> None:
    cls = message_named(name)
    for version in cls.schema.versions:
        theirs = kio_class(api_key, version, TYPES[kind])
        is_flexible = version in cls.schema.flexible
        maker = NarrowMaker(random.Random(f"{name} {version}"), version=version, is_flexible=is_flexible)
        for _ in range(3):
            data = b"".join(map(bytes, codec(cls, version=version).encode(maker.message(cls))))
            entity, size = entity_reader(theirs)(data, 0)
            written = io.BytesIO()
            entity_writer(theirs)(written, entity)
            assert (size, written.getvalue()) == (len(data), data), version
