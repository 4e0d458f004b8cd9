"""Goal: every message of every schema and version is read as it was written, and no bytes give an untyped error.
Method: Hypothesis draws fields by the schema, an encoder of the tests writes them; then cuts, flips and noise."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstore import InvalidRecordError
from kstore.record.schemas.coordinator import (
    CONSUMER_PROTOCOL,
    GROUP_KEYS,
    GROUP_VALUES,
    SHARE_STATE_KEYS,
    SHARE_STATE_VALUES,
    TRANSACTION_KEYS,
    TRANSACTION_VALUES,
)
from kstore.record.schemas.metadata import METADATA_RECORDS
from kstore.wire.schema import decode_message, encode_message, parse_schemas
from tests.making.strategies import examples
from tests.reference.protocol import message_fields, write_message

TABLES = (
    GROUP_KEYS,
    GROUP_VALUES,
    TRANSACTION_KEYS,
    TRANSACTION_VALUES,
    SHARE_STATE_KEYS,
    SHARE_STATE_VALUES,
    CONSUMER_PROTOCOL,
    METADATA_RECORDS,
)
MESSAGES = {
    f"{schema.name}-v{version}": (schema, version)
    for table in TABLES
    for schema in parse_schemas(table).values()
    for version in schema.versions
}


def read_or_refused(schema, version, data):
    """Any other exception fails the test; what is read is written to bytes that are read alike."""
    try:
        fields = decode_message(schema, data, version=version)
    except InvalidRecordError:
        return
    with_nan = "nan" in repr(fields)
    again = decode_message(schema, write_message(schema, fields, version=version), version=version)
    assert with_nan or again == fields


def drawn(data, schema, version):
    fields = data.draw(message_fields(schema.fields, version=version, flexible=version in schema.flexible))
    return fields, write_message(schema, fields, version=version)


@pytest.mark.parametrize(("schema", "version"), MESSAGES.values(), ids=MESSAGES)
@examples(15)
@given(data=st.data())
def test_message_is_read_as_it_was_written(schema, version, data):
    fields, written = drawn(data, schema, version)
    assert decode_message(schema, written, version=version) == fields
    assert encode_message(schema, fields, version=version) == written


@given(data=st.data(), message=st.sampled_from(list(MESSAGES.values())))
def test_cut_message_is_refused(data, message):
    schema, version = message
    _, written = drawn(data, schema, version)
    for size in range(len(written)):
        with pytest.raises(InvalidRecordError):
            decode_message(schema, written[:size], version=version)


@examples(12)
@given(data=st.data(), message=st.sampled_from(list(MESSAGES.values())))
def test_message_with_any_bit_flipped_is_read_or_refused(data, message):
    schema, version = message
    _, written = drawn(data, schema, version)
    for bit in range(len(written) * 8):
        flipped = bytearray(written)
        flipped[bit >> 3] ^= 1 << (bit & 7)
        read_or_refused(schema, version, bytes(flipped))


@given(noise=st.binary(max_size=80), message=st.sampled_from(list(MESSAGES.values())))
def test_noise_is_read_or_refused(noise, message):
    schema, version = message
    read_or_refused(schema, version, noise)
