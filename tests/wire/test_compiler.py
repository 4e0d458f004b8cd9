"""Goal: a compiled function reads and writes every message of every version as the interpreter does.
Method: random messages of all tables, by a seed and by Hypothesis; then cuts, flips and noise."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore.record.schemas.coordinator import (
    CONSUMER_PROTOCOL,
    GROUP_KEYS,
    GROUP_VALUES,
    SHARE_STATE_KEYS,
    SHARE_STATE_VALUES,
    TRANSACTION_KEYS,
    TRANSACTION_VALUES,
)
from kstore.record.schemas.metadata import METADATA_RECORDS, REMOTE_LOG_METADATA_RECORDS
from kstore.wire.classes import attribute, message_class
from kstore.wire.compiler import codec
from kstore.wire.messages import message_named, tables
from kstore.wire.schema import encode_message, parse_schema, split_table
from tests.making.collecting import over
from tests.making.strategies import examples
from tests.reference.protocol import message_fields
from tests.reference.wire import Maker, as_dict, compiled, from_dict, interpreted, is_default

RECORD_TABLES = (
    GROUP_KEYS,
    GROUP_VALUES,
    TRANSACTION_KEYS,
    TRANSACTION_VALUES,
    SHARE_STATE_KEYS,
    SHARE_STATE_VALUES,
    CONSUMER_PROTOCOL,
    METADATA_RECORDS,
    REMOTE_LOG_METADATA_RECORDS,
)
CLASSES = {
    name: message_class(parse_schema(text), module=__name__)
    for table in RECORD_TABLES
    for name, text in split_table(table).items()
} | {name: message_named(name) for name in tables()}


def kind_of(name):
    """Return the group of tests of a message."""
    return next((kind for kind in ("Request", "Response") if name.endswith(kind)), "records")


def joined(parts):
    return b"".join(map(bytes, parts))


def agree_on(cls, version, data):
    """The compiled function and the interpreter read the same of any bytes, or both refuse them."""
    expected = interpreted(cls, data, version=version)
    found = compiled(cls, data, version=version)
    assert found == expected or "nan" in repr(expected)


def random_message(cls, version, rng):
    maker = Maker(rng, version=version, is_flexible=version in cls.schema.flexible)
    return maker.message(cls)


@over("name", list(CLASSES), by=kind_of)
def test_message_of_every_version_is_read_and_written_as_the_interpreter_does(name):
    cls = CLASSES[name]
    for version in cls.schema.versions:
        rng = random.Random(f"{name} {version}")
        for _ in range(3):
            message = random_message(cls, version, rng)
            data = encode_message(cls.schema, as_dict(message, version=version), version=version)
            assert joined(codec(cls, version=version).encode(message)) == data
            for frame in (data, bytearray(data)):
                assert codec(cls, version=version).decode(frame) == (message, len(data))
            # A message inside of a frame.
            assert codec(cls, version=version).decode(b"abc" + data + b"de", 3) == (message, 3 + len(data))


@examples(120)
@given(name=st.sampled_from(list(CLASSES)), data=st.data())
def test_drawn_message_is_read_as_it_was_written(name, data):
    cls = CLASSES[name]
    version = data.draw(st.sampled_from(cls.schema.versions))
    fields = data.draw(message_fields(cls.schema.fields, version=version, flexible=version in cls.schema.flexible))
    written = encode_message(cls.schema, fields, version=version)
    message, position = codec(cls, version=version).decode(written)
    assert position == len(written)
    canonical = as_dict(from_dict(cls, fields), version=version)
    assert as_dict(message, version=version) == canonical
    again = joined(codec(cls, version=version).encode(message))
    assert again == encode_message(cls.schema, canonical, version=version)


@over("name", list(CLASSES), by=kind_of)
def test_cut_or_changed_message_is_refused_or_read_as_the_interpreter_does(name):
    cls = CLASSES[name]
    for version in cls.schema.versions:
        rng = random.Random(f"cut {name} {version}")
        data = joined(codec(cls, version=version).encode(random_message(cls, version, rng)))
        for size in rng.sample(range(len(data) + 1), min(8, len(data) + 1)):
            agree_on(cls, version, data[:size])
        for _ in range(12):
            changed = bytearray(data + b"\0")
            for _ in range(rng.choice((1, 1, 2))):
                changed[rng.randrange(len(changed))] = rng.choice((0, 1, 2, 0x7F, 0x80, 0xFF, rng.randrange(256)))
            agree_on(cls, version, bytes(changed))


@given(noise=st.binary(max_size=60), name=st.sampled_from(list(CLASSES)), data=st.data())
def test_noise_is_refused_or_read_as_the_interpreter_does(noise, name, data):
    cls = CLASSES[name]
    agree_on(cls, data.draw(st.sampled_from(cls.schema.versions)), noise)


@over("name", list(CLASSES), by=kind_of)
def test_field_of_another_version_is_dropped_or_refused(name):
    cls = CLASSES[name]
    for version in cls.schema.versions:
        encode = codec(cls, version=version).encode
        maker = Maker(random.Random(name), version=version, is_flexible=version in cls.schema.flexible)
        for field in cls.fields:
            if version in field.versions:
                continue
            value = maker.value(cls, field)
            while is_default(field, value):
                value = maker.value(cls, field)
            message = cls(**{attribute(field.name): value})
            if field.is_ignorable:
                assert encode(message) == encode(cls())
            else:
                with pytest.raises(ValueError, match=rf"{name} v{version}: {field.name}: expected the default"):
                    encode(message)
