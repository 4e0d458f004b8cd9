"""ObjectStore: requests that read, write and remove objects, and write one only if another writer did not before."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import unquote

from kstore.env.filesystems import (
    MOST_ATTEMPTS,
    SECRET_NAME,
    environment_endpoint,
    has_environment_region,
    masked,
    region_of_bucket,
    split_url,
    without_secrets,
)
from kstore.errors import StorageError, UnsupportedError

# Of stores that write an object only if it does not exist, or is still the one that was read; and their names in
# obstore.
CONDITIONAL_SCHEMES: Mapping[str, str] = MappingProxyType(
    {"s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gs", "gcs": "gs", "abfs": "abfs", "abfss": "abfss"}
)
_CONNECT_TIMEOUT_S = 5
# Of a part of 8 MiB.
_REQUEST_TIMEOUT_S = 60
_RETRIES_S = 60
# Options of obstore's HTTP client, which are given beside those of the store.
_CLIENT_OPTIONS = frozenset(
    {
        "allow_http",
        "allow_invalid_certificates",
        "connect_timeout",
        "pool_idle_timeout",
        "proxy_ca_certificate",
        "proxy_excludes",
        "proxy_url",
        "timeout",
        "user_agent",
    }
)
_DEBUG_TEXT = "\n\nDebug source"


class ObjectTag(NamedTuple):
    """Which content of an object a store answered with: its entity tag, and in Google's store its generation."""

    etag: str | None
    version: str | None


class StoredObject(NamedTuple):
    """The content of an object, and the tag of that content."""

    content: bytes
    tag: ObjectTag


class ObjectStore:
    """The objects of one bucket.

    Args: url: of anything in the bucket, without options; options: those of obstore's stores, such as
        aws_access_key_id or endpoint_url, by which credentials and the endpoint are found before the environment.
    Raises: UnsupportedError for a scheme without conditional writes; ValueError for an unknown option, or for a URL
        with options; ModuleNotFoundError without obstore; StorageError, without secrets, from every method.
    Cost: a request each, unless stated otherwise.  Threads: thread-safe.
    """

    def __init__(self, url: str, options: Mapping[str, str]) -> None:
        self._secrets = tuple(str(value) for name, value in options.items() if value and SECRET_NAME.search(name))
        self._store = _store_of(url, {name.lower(): str(value) for name, value in options.items()})

    def get(self, key: str, *, path: str) -> StoredObject | None:
        """Return an object, None if there is none."""
        import obstore

        try:
            with self._errors("read", path):
                found = obstore.get(self._store, key)
                return StoredObject(bytes(found.bytes()), _tag_of(found.meta))
        except StorageError as error:
            if error.errno != errno.ENOENT:
                raise
            return None

    def head(self, key: str, *, path: str) -> Mapping[str, Any]:
        """Return the facts of an object: size, last_modified, e_tag, version."""
        import obstore

        with self._errors("open", path):
            facts: Mapping[str, Any] = obstore.head(self._store, key)
        return facts

    def read(self, key: str, size: int, *, position: int, path: str) -> bytearray:
        """Return up to `size` bytes from a position."""
        import obstore

        with self._errors(f"read {size} bytes at position {position} of", path):
            return bytearray(obstore.get_range(self._store, key, start=position, length=size))

    def put(self, key: str, content: bytes, *, path: str) -> None:
        """Write an object in place of one that there may be."""
        import obstore

        with self._errors("write", path):
            obstore.put(self._store, key, content, use_multipart=False)

    def put_if(self, key: str, content: bytes, *, expected: ObjectTag | None, path: str) -> bool:
        """Write an object if it is still that of a tag, or with None if there is none; return whether it was written.

        After an error, and after False if an answer was lost, it may have been written all the same.
        Raises: UnsupportedError if the store says that it cannot.
        """
        import obstore
        from obstore.exceptions import AlreadyExistsError, NotSupportedError, PreconditionError

        try:
            with self._errors("write", path, but=(AlreadyExistsError, NotSupportedError, PreconditionError)):
                obstore.put(self._store, key, content, mode=_mode_of(expected), use_multipart=False)
        except (AlreadyExistsError, PreconditionError):
            return False
        except (NotSupportedError, NotImplementedError):
            raise UnsupportedError(f"cannot write {path}: this store has no conditional PUT", path=path) from None
        except StorageError as error:
            if expected is not None and error.errno == errno.ENOENT:
                return False
            if "501 Not Implemented" in str(error):
                raise UnsupportedError(f"cannot write {path}: this store has no conditional PUT", path=path) from error
            raise
        return True

    def copy(self, source: str, target: str, *, path: str) -> None:
        """Copy an object inside of the store, at most 5 GiB."""
        import obstore

        with self._errors("copy", path):
            obstore.copy(self._store, source, target)

    def delete(self, keys: Iterable[str], *, path: str) -> None:
        """Remove objects that there may be.  Cost: in S3 a request for 1000 objects."""
        import obstore
        from obstore.exceptions import NotFoundError

        names = list(keys)
        if not names:
            return
        with self._errors("remove objects of", path, but=(NotFoundError, FileNotFoundError)):
            try:
                obstore.delete(self._store, names)
            except (NotFoundError, FileNotFoundError):
                # Of one of them, in a store that says so.
                for name in names:
                    with _not_found():
                        obstore.delete(self._store, name)

    def below(self, prefix: str, *, path: str) -> list[str]:
        """Return the keys of all objects below a directory.  Cost: a request for 1000 objects."""
        import obstore

        with self._errors("list", path):
            return [found["path"] for batch in obstore.list(self._store, prefix) for found in batch]

    def names(self, prefix: str, *, path: str) -> list[str]:
        """Return the names of the objects and directories in a directory, sorted."""
        import obstore

        with self._errors("list", path):
            found = obstore.list_with_delimiter(self._store, prefix)
        keys = [*found["common_prefixes"], *(each["path"] for each in found["objects"])]
        return sorted({key.rstrip("/").rpartition("/")[2] for key in keys})

    def upload(self, key: str, *, part_bytes: int, parts_at_a_time: int, path: str) -> Any:
        """Return a writer of obstore, whose object exists once it is closed."""
        import obstore

        with self._errors("write", path):
            return obstore.open_writer(self._store, key, buffer_size=part_bytes, max_concurrency=parts_at_a_time)

    @contextmanager
    def errors(self, action: str, path: str) -> Iterator[None]:
        """Context manager: errors of obstore become a StorageError."""
        with self._errors(action, path):
            yield

    @contextmanager
    def _errors(self, action: str, path: str, *, but: tuple[type[BaseException], ...] = ()) -> Iterator[None]:
        from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError

        try:
            yield
        except but:
            raise
        except (BaseError, OSError) as error:
            if isinstance(error, StorageError):
                raise
            number = errno.EIO
            if isinstance(error, FileNotFoundError):
                number = errno.ENOENT
            elif isinstance(error, PermissionDeniedError | UnauthenticatedError):
                number = errno.EACCES
            text = masked(str(error).partition(_DEBUG_TEXT)[0].strip(), self._secrets)
            # The error of obstore may show a secret, so that it is not kept as the cause.
            raise StorageError(f"cannot {action} {path}: {text}", path=path, errno=number) from None


@contextmanager
def _not_found() -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        return


def _tag_of(facts: Mapping[str, Any]) -> ObjectTag:
    return ObjectTag(facts.get("e_tag"), facts.get("version"))


def _mode_of(expected: ObjectTag | None) -> Any:
    if expected is None:
        return "create"
    return {
        name: value for name, value in (("e_tag", expected.etag), ("version", expected.version)) if value is not None
    }


def bucket_key(url: str) -> str:
    """Return the key of a URL's path in its bucket."""
    return unquote(split_url(url).path).strip("/")


def _store_of(url: str, options: Mapping[str, str]) -> Any:
    parts = split_url(url)
    shown = without_secrets(url)
    scheme = CONDITIONAL_SCHEMES.get(parts.scheme)
    if scheme is None:
        known = ", ".join(sorted({*CONDITIONAL_SCHEMES.values()}))
        raise UnsupportedError(
            f"cannot write {shown}: kstore writes to local directories and to stores that write an object only if "
            f"nobody else did ({known}); {parts.scheme} has no such request",
            path=shown,
        )
    user = parts.netloc.rpartition("@")[0]
    if parts.query or parts.fragment or (user and (scheme in ("s3", "gs") or ":" in user)):
        raise ValueError(
            f"{shown}: expected a URL without options and keys to write to; they are in the environment, or in "
            "storage_options"
        )
    try:
        from obstore.exceptions import BaseError
        from obstore.store import from_url
    except ModuleNotFoundError as error:
        message = f"writing to {shown} needs the package obstore: pip install 'kstore[objects]'"
        raise ModuleNotFoundError(message, name="obstore") from error
    given: dict[str, Any] = dict(options)
    client: dict[str, Any] = {name: given.pop(name) for name in list(given) if name in _CLIENT_OPTIONS}
    client = {"connect_timeout": f"{_CONNECT_TIMEOUT_S}s", "timeout": f"{_REQUEST_TIMEOUT_S}s", **client}
    if scheme == "s3":
        try:
            given |= _s3_options(given, parts.netloc)
        except OSError as error:
            raise StorageError(f"cannot find the region of {shown}: {error}", path=shown, errno=errno.EIO) from error
    endpoint = next((value for name, value in given.items() if name.endswith(("endpoint", "endpoint_url"))), "")
    if endpoint.startswith("http:"):
        client.setdefault("allow_http", "true")
    retries: Any = {"max_retries": MOST_ATTEMPTS - 1, "retry_timeout": timedelta(seconds=_RETRIES_S)}
    try:
        make: Any = from_url
        return make(f"{scheme}://{parts.netloc}", config=given or None, client_options=client, retry_config=retries)
    except BaseError as error:
        text = masked(str(error).partition(_DEBUG_TEXT)[0].strip(), given.values())
        raise ValueError(f"cannot write to {shown}: {text}") from None


def _s3_options(given: Mapping[str, str], bucket: str) -> dict[str, str]:
    """Return the endpoint and the region, unless they are given, as URLs to read from have them."""
    found: dict[str, str] = {}
    names = {name.removeprefix("aws_") for name in given}
    if not names & {"endpoint", "endpoint_url"}:
        endpoint = environment_endpoint()
        if endpoint:
            found["aws_endpoint_url"] = endpoint
    if not names & {"region", "default_region"} and not has_environment_region():
        is_amazon = not found and not names & {"endpoint", "endpoint_url"}
        found["aws_region"] = region_of_bucket(bucket) if is_amazon else "us-east-1"
    return found
