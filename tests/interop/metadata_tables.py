"""The records that adoption writes, as Kafka's definitions of a release have them, beside kstore's tables of them."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kstore.record.schemas.metadata import METADATA_RECORDS
from kstore.wire.schema import STRUCT, Field, parse_schemas
from tests.interop.definitions import COMMENT, versions

# By their names, in which version they are written.
WRITTEN = {
    "RegisterBrokerRecord": 3,
    "TopicRecord": 0,
    "PartitionRecord": 1,
    "ConfigRecord": 0,
    "RemoveTopicRecord": 0,
    "FeatureLevelRecord": 0,
    "ProducerIdsRecord": 0,
}
Place = tuple[str, str, int | None, bool]


def problems(jar: Path) -> Iterator[str]:
    """What is not as in a jar of kafka-metadata."""
    ours = {schema.name: schema for schema in parse_schemas(METADATA_RECORDS).values()}
    with zipfile.ZipFile(jar) as archive:
        for name, version in WRITTEN.items():
            text = archive.read(f"common/metadata/{name}.json").decode()
            theirs = json.loads(COMMENT.sub("", text))
            if (theirs["apiKey"],) != ours[name].api_keys:
                yield f"{name} is {theirs['apiKey']}, expected {ours[name].api_keys}"
            if version not in versions(theirs["validVersions"]) or version not in versions(theirs["flexibleVersions"]):
                yield f"{name} has no flexible version {version}: {theirs['validVersions']}"
            wanted, found = [*of_kafka(theirs["fields"], version)], [*of_kstore(ours[name].fields, version)]
            if wanted != found:
                yield f"{name} {version} has {wanted}, expected {found}"


def of_kafka(fields: list[dict[str, Any]], version: int) -> Iterator[Place]:
    """Name, type, tag and whether it may be null, of each field of a version."""
    for field in fields:
        if version in versions(field["versions"]):
            inner = field.get("fields")
            kind = field["type"] if inner is None else "struct"
            tag = int(field["tag"]) if version in versions(field.get("taggedVersions", "none")) else None
            is_nullable = version in versions(field.get("nullableVersions", "none"))
            yield field["name"][:1].lower() + field["name"][1:], kind, tag, is_nullable
            yield from of_kafka(inner or [], version)


def of_kstore(fields: tuple[Field, ...], version: int) -> Iterator[Place]:
    for field in fields:
        if version in field.versions:
            kind = field.kind if field.kind == STRUCT else f"{'[]' if field.is_array else ''}{field.kind}"
            yield field.name, kind, field.tag, version in field.nullable
            yield from of_kstore(field.fields, version)
