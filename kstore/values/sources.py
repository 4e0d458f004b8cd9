"""Where schemas are: a topic `_schemas`, or a registry that answers over HTTP, as Confluent's does."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterable, Iterator
from typing import Any, Protocol, TypeGuard
from urllib.parse import quote

from kstore.env import Env, StrPath, is_http
from kstore.env.http import http_get
from kstore.env.process import variable
from kstore.errors import SchemaNotFoundError, StorageError, UnsupportedError
from kstore.values.registry import RegisteredSchema, SchemaRegistry, SchemaTopic, registered_schema

CREDENTIALS_VARIABLE = "SCHEMA_REGISTRY_BASIC_AUTH_USER_INFO"
_MOST_ANSWER_BYTES = 64 << 20
_MOST_SCHEMAS = 1_000_000
_PAGE_SCHEMAS = 1000
# Of a registry that changes in the meantime.
_MOST_LISTINGS = 5
# Ids in a row that no version has, after which those that are looked for are hard to find.
_MOST_ABSENT_IDS = 1000
_FOUND, _UNAUTHORIZED, _FORBIDDEN, _NOT_FOUND, _NOT_ALLOWED = 200, 401, 403, 404, 405


class SchemasSource(Protocol):
    """What has schemas. Not thread-safe."""

    def read(self) -> SchemaRegistry:
        """Return what there is now; the same object if nothing changed."""
        ...

    def close(self) -> None:
        """Close files; the next read opens them again."""
        ...


def schemas_source(place: StrPath, env: Env | None = None) -> SchemasSource:
    """Return the source at a root, a partition or a URL of one, or at the http or https URL of a registry.

    Raises: as SchemaTopic; ValueError for a URL with credentials.
    """
    return RestRegistry(place) if is_registry(place) else SchemaTopic(place, env)


def check_place(place: object) -> None:
    """Raise ValueError, without them, for the URL of a registry with credentials, so that none are kept anywhere."""
    if is_registry(place) and any(character in place for character in "@?#"):
        raise ValueError(
            "the URL of a registry may have no credentials, options or fragment; the environment variable "
            f"{CREDENTIALS_VARIABLE} takes USER:PASSWORD"
        )


def is_registry(place: object) -> TypeGuard[str]:
    """Return whether a place is the URL of a registry."""
    return isinstance(place, str) and is_http(place)


def read_schemas(path: StrPath, env: Env | None = None) -> SchemaRegistry:
    """Return what a `_schemas` topic adds up to, or what a registry answers.

    Args: path: a root that has the topic, or the directory of its one partition; or the http or https URL of a
        registry, with credentials in the environment variable SCHEMA_REGISTRY_BASIC_AUTH_USER_INFO (USER:PASSWORD).
    Raises: SchemaNotFoundError if a root has no such topic; otherwise what Log.read raises. Of a registry: StorageError
        if it does not answer, or refuses to; UnsupportedError for an answer that no registry gives; MemoryLimitError
        for one of more than 64 MiB; ValueError for a URL with credentials.
    Cost: reads the topic once; of a registry a request for each thousand schemas, and one for each subject.
    """
    source = schemas_source(path, env)
    try:
        registry = source.read()
        return source.with_levels(registry, registry.subjects) if isinstance(source, RestRegistry) else registry
    finally:
        source.close()


class RestRegistry:
    """A registry that answers over HTTP: Confluent's, Karapace, Redpanda, Apicurio.

    Args: url: its address, without credentials.
    Raises: ValueError for a URL with credentials; from its methods as read_schemas.
    """

    def __init__(self, url: str) -> None:
        check_place(url)
        self._url = url.rstrip("/")
        self._registry: SchemaRegistry | None = None

    def read(self) -> SchemaRegistry:
        """Return all schemas, deleted ones too, and the level of compatibility of all."""
        known = self._registry
        read = SchemaRegistry(self._schemas(), self._levels([""]))
        if known is None or (known.schemas, known.compatibility) != (read.schemas, read.compatibility):
            self._registry = known = read
        return known

    def with_levels(self, registry: SchemaRegistry, subjects: Iterable[str]) -> SchemaRegistry:
        """Return a registry with the levels that some subjects and their contexts have of their own."""
        own = dict.fromkeys(subjects)
        names = dict.fromkeys(subject[2:].partition(":")[0] for subject in own if subject.startswith(":."))
        contexts = [f":.{name}:" for name in names]
        return SchemaRegistry(registry.schemas, {**registry.compatibility, **self._levels([*contexts, *own])})

    def close(self) -> None:
        """Nothing is open between requests."""

    def _schemas(self) -> Iterator[RegisteredSchema]:
        """Yield all versions; those that are not listed without deleted ones are deleted."""
        everything = self._listed(is_deleted_too=True)
        live = self._listed(is_deleted_too=False)
        for place, fields in everything.items():
            yield self._schema(fields, is_deleted=place not in live)

    def _schema(self, fields: dict[str, Any], *, is_deleted: bool) -> RegisteredSchema:
        schema = registered_schema(fields["subject"], fields["version"], {**fields, "deleted": is_deleted})
        if schema is None:
            raise self._unexpected(f"version {fields['version']} of {fields['subject']!r}", fields)
        return schema

    def _listed(self, *, is_deleted_too: bool) -> dict[tuple[str, int], dict[str, Any]]:
        deleted = "true" if is_deleted_too else "false"
        for _ in range(_MOST_LISTINGS):
            listed = self._pages(deleted)
            if listed is not None:
                return listed
        raise StorageError(
            f"{self._url} was asked for its schemas {_MOST_LISTINGS} times, and each time they changed while they were "
            "listed",
            path=self._url,
            errno=errno.EAGAIN,
        )

    def _pages(self, deleted: str) -> dict[tuple[str, int], dict[str, Any]] | None:
        """Return all schemas, None if one was added or removed before the end of a page.

        Each page begins with the last schema of the page before. A registry may have smaller pages than are asked for.
        """
        listed: dict[tuple[str, int], dict[str, Any]] = {}
        overlap, is_whole = 0, False
        while True:
            start = len(listed) - overlap
            page = self._get(f"/schemas?subjectPrefix=%3A%2A%3A&deleted={deleted}&offset={start}&limit={_PAGE_SCHEMAS}")
            if page is None or not (page or listed):
                # Apicurio lists none, as it knows no prefix of all contexts.
                return self._one_by_one(deleted)
            last, before = next(reversed(listed), None), len(listed)
            places = self._add(listed, page)
            if before and len(places) == len(listed) and places == list(listed):
                # A registry that knows no pages answers with all schemas each time.
                if is_whole:
                    return listed
                is_whole, overlap = True, 0
                continue
            if is_whole or (overlap and (not places or places[0] != last)):
                return None
            if len(listed) == before:
                return listed
            overlap = 1 if len(places) > 1 else 0

    def _one_by_one(self, deleted: str) -> dict[tuple[str, int], dict[str, Any]]:
        """Return what a registry without a list of all schemas has, a request for each version."""
        listed: dict[tuple[str, int], dict[str, Any]] = {}
        hidden: set[tuple[str, int]] = set()
        subjects = self._get(f"/subjects?deleted={deleted}")
        if subjects is None:
            raise SchemaNotFoundError(f"{self._url} is no schema registry: it has no /subjects", path=self._url)
        for subject in subjects:
            path = f"/subjects/{quote(str(subject), safe='')}/versions"
            for version in self._get(f"{path}?deleted={deleted}") or ():
                fields = self._get(f"{path}/{quote(str(version), safe='')}?deleted={deleted}", kind=dict)
                if not self._add(listed, [fields]) and isinstance(subject, str) and isinstance(version, int):
                    hidden.add((subject, version))
        self._add_by_ids(listed, hidden)
        return listed

    def _add_by_ids(self, listed: dict[tuple[str, int], dict[str, Any]], hidden: set[tuple[str, int]]) -> None:
        """Add the versions that are named, but not given: Apicurio gives the last ones of a subject that is deleted
        softly by their ids alone, which count from 1.
        """
        known = {fields.get("id") for fields in listed.values()}
        schema_id = absent = 0
        while hidden and absent < _MOST_ABSENT_IDS and schema_id < _MOST_SCHEMAS:
            schema_id += 1
            if schema_id in known:
                continue
            named = self._get(f"/schemas/ids/{schema_id}/versions?deleted=true")
            absent = 0 if named else absent + 1
            found = {
                (subject, version)
                for subject, version in hidden
                for each in named or ()
                if isinstance(each, dict) and (each.get("subject"), each.get("version")) == (subject, version)
            }
            fields = self._get(f"/schemas/ids/{schema_id}", kind=dict) if found else None
            if fields is not None:
                for subject, version in sorted(found):
                    self._add(listed, [{**fields, "id": schema_id, "subject": subject, "version": version}])
            hidden -= found

    def _add(self, listed: dict[tuple[str, int], dict[str, Any]], page: Iterable[Any]) -> list[tuple[str, int]]:
        """Add schemas to those that are listed, and return their subjects and versions."""
        places = []
        for fields in page:
            match fields:
                case {"subject": str(subject), "version": int(version)}:
                    listed[subject, version] = fields
                    places.append((subject, version))
                    if len(listed) > _MOST_SCHEMAS:
                        raise UnsupportedError(f"{self._url} has more than {_MOST_SCHEMAS} schemas", path=self._url)
                case None:  # deleted since it was listed
                    pass
                case _:
                    raise self._unexpected("a schema", fields)
        return places

    def _levels(self, subjects: Iterable[str]) -> dict[str, str]:
        levels: dict[str, str] = {}
        for subject in subjects:
            path = f"/config/{quote(subject, safe='')}" if subject else "/config"
            fields = self._get(path, kind=dict) or {}
            level = fields.get("compatibilityLevel")
            if isinstance(level, str):
                levels[subject] = level
        return levels

    def _get(self, path: str, *, kind: type = list) -> Any:
        """Return the JSON of an answer, None if there is nothing at the path."""
        answer = http_get(
            f"{self._url}{path}", credentials=variable(CREDENTIALS_VARIABLE), most_bytes=_MOST_ANSWER_BYTES
        )
        if answer.status in (_NOT_FOUND, _NOT_ALLOWED):
            return None
        if answer.status in (_UNAUTHORIZED, _FORBIDDEN):
            raise StorageError(
                f"{self._url} refuses to answer (status {answer.status}): {CREDENTIALS_VARIABLE} takes USER:PASSWORD",
                path=self._url,
                errno=errno.EACCES,
            )
        try:
            found = json.loads(answer.body)
        except (ValueError, RecursionError):
            found = answer.body[:80]
        if answer.status != _FOUND or not isinstance(found, kind):
            raise self._unexpected(
                f"{kind.__name__} at {path.partition('?')[0]}, status {_FOUND}", (answer.status, found)
            )
        return found

    def _unexpected(self, expected: str, found: object) -> UnsupportedError:
        shown = repr(found)
        shown = shown if len(shown) <= 200 else shown[:197] + "..."
        return UnsupportedError(
            f"{self._url} answers as no schema registry does: expected {expected}, found {shown}", path=self._url
        )
