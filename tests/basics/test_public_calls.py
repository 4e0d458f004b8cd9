"""Goal: Python tells the parameters of every public class, method and function, also of the compiled ones.
Method: inspect.signature on all public names; for compiled classes, against the constructors in the Cython source."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

import kstore
import kstore.producer
from kstore import _core
from kstore.types import TimestampType
from tests.repo.test_sourcecode import source_constructors

# Those whose docstring begins with their signature, which Python takes from there.
COMPILED = (
    _core.Record,
    _core.MemoryRecordsCore,
    _core.MemoryRecordsBuilderCore,
    _core.FutureRecordMetadataCore,
    _core.ProduceRequestResultCore,
    _core.StickyPartitionInfo,
    _core.FetchRangeCore,
)


def public_callables() -> Iterator[tuple[str, Any]]:
    """Yield each public function and class, and the public methods of each class."""
    for name in kstore.__all__:
        found = getattr(kstore, name)
        if callable(found):
            yield name, found
        if inspect.isclass(found):
            bases = [base for base in found.__mro__ if base.__module__.startswith("kstore")]
            members = {member for base in bases for member in vars(base) if not member.startswith("_")}
            for member in sorted(members):
                if callable(method := getattr(found, member)):
                    yield f"{name}.{member}", method


def test_every_public_class_method_and_function_has_a_signature() -> None:
    without = []
    for name, found in public_callables():
        try:
            inspect.signature(found)
        except (TypeError, ValueError):
            without.append(name)
    assert without == []


def parameters_of(kind: type) -> list[str]:
    names = []
    for name, parameter in inspect.signature(kind).parameters.items():
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in names:
            names.append("*")
        names.append(name)
    return names


@pytest.mark.parametrize("kind", COMPILED, ids=lambda kind: kind.__name__)
def test_signature_of_a_compiled_class_has_the_parameters_of_its_constructor(kind: type) -> None:
    assert parameters_of(kind) == source_constructors()[kind.__name__]
    assert kind.__doc__ is not None
    assert not kind.__doc__.lstrip().startswith(kind.__name__)


def test_signature_of_a_compiled_class_has_its_defaults() -> None:
    parameters = inspect.signature(kstore.Record).parameters
    defaults = {name: parameter.default for name, parameter in parameters.items()}
    record = kstore.Record()
    assert {name: getattr(record, name) for name in defaults} == defaults
    assert defaults["timestamp_type"] is TimestampType.CREATE_TIME
    parameters = inspect.signature(kstore.MemoryRecordsBuilder).parameters
    builder = kstore.MemoryRecordsBuilder()
    shown = {name: one.default for name, one in parameters.items() if name not in ("delete_horizon_ms", "buffer")}
    assert shown.pop("compression") == builder.compression.label
    assert {name: getattr(builder, name) for name in shown} == shown


def test_memory_records_are_made_of_a_buffer() -> None:
    assert parameters_of(kstore.MemoryRecords) == ["buffer", "*", "position", "path", "topic_partition", "config"]
