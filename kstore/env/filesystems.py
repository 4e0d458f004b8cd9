"""The file systems of pyarrow, and through it of fsspec: the only module that imports pyarrow.fs.

Their errors become StorageErrors with the path and the text of the server, without secrets.
"""

from __future__ import annotations

import errno
import re
from array import array
from bisect import bisect_left
from calendar import timegm
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit

from kstore.env.base import ObjectIdentity
from kstore.env.process import SYSTEM_CLOCK, variable
from kstore.errors import StorageError

# How often a request is tried, with pauses, by the retry strategy of pyarrow.
MOST_ATTEMPTS = 4
# Seconds without an answer after which a request is tried again.
_CONNECT_TIMEOUT_S = 5.0
_REQUEST_TIMEOUT_S = 30.0
# The text of pyarrow's error, which it does not retry, if the error of a server is longer than the read.
_LOST_ANSWER = "Failed to flush response stream"
_PAUSE_S = 0.2
# The last byte of a read buffer is set to one of these in turn before the request: if it stays, the answer was short.
_FILLS = (0xA5, 0x5A)
_GCS_RETRIES_S = "30"
_NS = 10**9

_S3_TEXTS = ("region", "scheme", "endpoint_override", "session_token", "role_arn", "tls_ca_file_path")
_S3_NUMBERS = ("request_timeout", "connect_timeout")
_S3_FLAGS = ("anonymous", "force_virtual_addressing")
SECRET_NAME = re.compile(r"key|secret|token|password|credential|sig", re.IGNORECASE)
_MASK = "***"
_NO_SUCH_PLACE = re.compile(r"NO_SUCH_BUCKET|NO_SUCH_KEY|NoSuchBucket|RESOURCE_NOT_FOUND|ContainerNotFound")


class ListedObject(NamedTuple):
    """An object in a listing; modified_ns is 0 if the file system does not report it."""

    size_in_bytes: int
    modified_ns: int

    @property
    def identity(self) -> ObjectIdentity:
        return ObjectIdentity(self.size_in_bytes, self.modified_ns // _NS)


class _Objects(NamedTuple):
    """The objects of a directory, sorted: their names joined by "/", the start of each, and their sizes and times."""

    names: str
    starts: array[int]
    numbers: array[int]

    @property
    def object_count(self) -> int:
        return len(self.starts) - 1

    def name(self, at: int) -> str:
        return self.names[self.starts[at] : self.starts[at + 1] - 1]

    def listed(self, at: int) -> ListedObject:
        return ListedObject(*self.numbers[2 * at : 2 * at + 2])


_NO_OBJECTS = _Objects("", array("q", [0]), array("q"))


class Listing:
    """The objects and directories below a directory, from one listing; paths are relative to it, "" is itself.

    Memory: the names and 24 bytes for each object, and a few hundred bytes for each directory.  Threads: thread-safe.
    """

    def __init__(self) -> None:
        self._directories: dict[str, _Objects] = {}
        self._inner: dict[str, set[str]] = {}

    @classmethod
    def of(cls, objects: Iterable[tuple[str, ListedObject]], *, directories: Iterable[str] = ()) -> Listing:
        """Make a listing of objects and their paths relative to the directory.

        Args: directories: others that exist, whose content is unknown.
        """
        listing = cls()
        gathered: dict[str, tuple[list[str], array[int]]] = {}
        for path, listed in objects:
            directory, _, name = path.rpartition("/")
            names, numbers = gathered.setdefault(directory, ([], array("q")))
            names.append(name)
            numbers.extend(listed)
        while gathered:
            directory, (names, numbers) = gathered.popitem()
            order = sorted(range(len(names)), key=names.__getitem__)
            listing._directories[directory] = _Objects(
                "/".join([names[at] for at in order]),
                array("q", accumulate([len(names[at]) + 1 for at in order], initial=0)),
                array("q", [number for at in order for number in numbers[2 * at : 2 * at + 2]]),
            )
            listing._add_parents(directory)
        for directory in directories:
            listing._add_parents(directory)
        return listing

    def _add_parents(self, directory: str) -> None:
        while directory:
            parent, _, name = directory.rpartition("/")
            if name in self._inner.setdefault(parent, set()):
                return
            self._inner[parent].add(name)
            directory = parent

    def is_directory(self, directory: str) -> bool:
        """Whether a directory exists."""
        parent, _, name = directory.rpartition("/")
        is_named = bool(directory) and name in self._inner.get(parent, ())
        return is_named or directory in self._directories or directory in self._inner

    def objects(self, directory: str) -> dict[str, ListedObject]:
        """Return the objects in a directory, by name."""
        objects = self._directories.get(directory, _NO_OBJECTS)
        return {objects.name(at): objects.listed(at) for at in range(objects.object_count)}

    def object(self, directory: str, name: str) -> ListedObject | None:
        """Return one object, None if there is none of that name.  Cost: O(log objects)."""
        objects = self._directories.get(directory, _NO_OBJECTS)
        at = bisect_left(range(objects.object_count), name, key=objects.name)
        return objects.listed(at) if at < objects.object_count and objects.name(at) == name else None

    def names(self, directory: str) -> list[str]:
        """Return the names in a directory, sorted."""
        return sorted({*self.objects(directory), *self._inner.get(directory, ())})

    def digest(self, directory: str) -> int:
        """Return a number that changes, in this process, with the names, sizes and times in a directory."""
        objects = self._directories.get(directory, _NO_OBJECTS)
        return hash((objects.names, objects.numbers.tobytes(), frozenset(self._inner.get(directory, ()))))


class OpenObject(NamedTuple):
    """An object that was opened, and its identity then."""

    handle: Any
    identity: ObjectIdentity


class RemoteFileSystem:
    """A file system of pyarrow, whose errors become StorageErrors.

    Args: filesystem: a pyarrow.fs.FileSystem; secrets: texts that no message shows; unquotes: whether the path of an
        object is that of its URL with %20 and the like decoded; forget: called before each request, to drop what the
        file system cached.
    Cost: each method says how many requests it sends to an S3 server.
    Threads: thread-safe.
    """

    def __init__(
        self,
        filesystem: Any,
        *,
        secrets: Iterable[str] = (),
        unquotes: bool = True,
        forget: Callable[[], object] = lambda: None,
    ) -> None:
        self._filesystem = filesystem
        self._secrets = tuple(secret for secret in secrets if secret)
        self._unquotes = unquotes
        self._forget = forget

    def key_of(self, url_path: str) -> str:
        """Return the path in the file system of the path, or a part of it, in a URL."""
        return unquote(url_path) if self._unquotes else url_path

    def list(self, key: str, *, path: str, is_recursive: bool = True) -> Listing:
        """Return everything below a directory, or only what is directly in it; empty if it does not exist.

        Cost: 1 request per 1000 objects, or per 1000 names.
        """
        from pyarrow.fs import FileSelector, FileType

        with self._errors("list", path):
            self._forget()
            infos = self._filesystem.get_file_info(FileSelector(key, allow_not_found=True, recursive=is_recursive))
        start = len(key.rstrip("/")) + 1 if key.strip("/") else len(key)
        directories = () if is_recursive else [info.path[start:] for info in infos if info.type is FileType.Directory]
        files = (info for info in _popped(infos) if info.type is FileType.File)
        listed = ((info.path[start:], ListedObject(info.size or 0, info.mtime_ns or 0)) for info in files)
        return Listing.of(listed, directories=directories)

    def status(self, key: str, *, path: str) -> ListedObject | bool:
        """Return an object, True for a directory, False if neither exists.  Cost: 1 request, 2 if it is no object."""
        from pyarrow.fs import FileType

        with self._errors("stat", path):
            self._forget()
            info = self._filesystem.get_file_info(key)
        if info.type is FileType.File:
            return ListedObject(info.size or 0, info.mtime_ns or 0)
        return bool(info.type is FileType.Directory)

    def open(self, key: str, *, path: str) -> OpenObject:
        """Open an object.  Cost: 1 request."""
        with self._errors("open", path):
            self._forget()
            handle = self._filesystem.open_input_file(key)
            size = handle.size()
            try:
                metadata = handle.metadata() or {}
            except NotImplementedError:
                metadata = {}
            texts = {_text(name).lower(): _text(value) for name, value in metadata.items()}
            modified_s = _seconds(texts.get("last-modified", ""))
            if not modified_s:
                modified_s = (self._filesystem.get_file_info(key).mtime_ns or 0) // _NS
        return OpenObject(handle, ObjectIdentity(size, modified_s, texts.get("etag", "")))

    def read(self, opened: OpenObject, size: int, *, position: int, path: str) -> bytearray:
        """Return `size` bytes of an open object, which must have as many.

        A short answer is requested again, up to MOST_ATTEMPTS times: pyarrow does not report it, and leaves the rest of
        the buffer as it was.
        Raises: StorageError.
        Cost: 1 request, and a second one if the last byte happens to be the one that marks it as missing.
        """
        for attempt in range(MOST_ATTEMPTS):
            is_last = attempt == MOST_ATTEMPTS - 1
            try:
                data = self._read_once(opened, size, position=position, fill=_FILLS[attempt % 2], path=path)
                if data is not None:
                    return data
            except StorageError as error:
                if is_last or _LOST_ANSWER not in str(error):
                    raise
            if attempt and not is_last:
                SYSTEM_CLOCK.sleep_ms(_PAUSE_S * attempt * 1000)
        raise StorageError(
            f"cannot read {path}: asked {MOST_ATTEMPTS} times for {size} bytes at position {position}, each answer had "
            "fewer",
            path=path,
            errno=errno.EIO,
        )

    def _read_once(self, opened: OpenObject, size: int, *, position: int, fill: int, path: str) -> bytearray | None:
        """Return the bytes, None if the last one was not set."""
        data = bytearray(size)
        data[-1] = fill
        # Into our own buffer; each stream has its own position, so that threads can share the object.
        with (
            self._errors(f"read {size} bytes at position {position} of", path),
            opened.handle.get_stream(position, size) as stream,
        ):
            count: int = stream.readinto(data)
        return data if count == size and data[-1] != fill else None

    @contextmanager
    def _errors(self, action: str, path: str) -> Iterator[None]:
        from pyarrow.lib import ArrowException

        try:
            yield
        except (OSError, ArrowException, ValueError, PermissionError) as error:
            if isinstance(error, StorageError):
                raise
            text = masked(str(error), self._secrets)
            number = getattr(error, "errno", None) or errno.EIO
            if _NO_SUCH_PLACE.search(text):
                number = errno.ENOENT
            # The error of pyarrow may show a secret, so that it is not kept as the cause.
            raise StorageError(f"cannot {action} {path}: {text}", path=path, errno=number) from None


def _popped(items: list[Any]) -> Iterator[Any]:
    """Yield the items of a list in order and remove them from it: those of pyarrow take more memory than a listing."""
    items.reverse()
    while items:
        yield items.pop()


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _seconds(text: str) -> int:
    """Return the seconds since 1970 of a time such as 2024-05-01T12:00:00Z, 0 for any other text."""
    match = re.match(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)", text)
    return timegm(tuple(map(int, match.groups()))) if match else 0


def masked(text: str, secrets: Iterable[str]) -> str:
    """Return a text without these secrets."""
    for secret in secrets:
        text = text.replace(secret, _MASK)
    return text


_USER = re.compile(r"//[^/?#]*@")


def without_secrets(url: str) -> str:
    """Return a URL, or what looks like one, without its users, passwords, options and fragment."""
    return _USER.sub("//", re.split(r"[?#]", url, maxsplit=1)[0])


def split_url(url: str) -> SplitResult:
    """Split a URL.

    Raises: StorageError, without secrets, for one that urllib refuses.
    """
    try:
        return urlsplit(url)
    except ValueError:
        # The error of urllib may show the password.
        shown = without_secrets(url)
        raise StorageError(
            f"cannot read {shown}: its user, password or host is not valid in a URL (write special characters as %XX)",
            path=shown,
            errno=errno.EINVAL,
        ) from None


def secrets_of(parts: SplitResult) -> list[str]:
    """Return the secret texts of a URL: passwords, and the values of options with a name like one."""
    secrets = [value for name, value in parse_qsl(parts.query) if SECRET_NAME.search(name)]
    user, separator, password = parts.netloc.rpartition("@")[0].partition(":")
    shown_user = [] if parts.scheme in ("abfs", "abfss") else [user]
    secrets += [password if separator else "", *shown_user]
    return [text for text in {*secrets, *map(unquote, secrets)} if text]


class MadeFileSystem(NamedTuple):
    """The file system of a URL, and the URL's path in it."""

    filesystem: RemoteFileSystem
    key: str


def filesystem_of(url: str) -> MadeFileSystem:
    """Return the file system of a URL; equal URLs share one, with its connections.

    Raises: StorageError if there is none for the scheme, pyarrow is missing, or the options are wrong.
    """
    return _made(url, environment_endpoint() if url.startswith("s3:") else "")


@lru_cache(maxsize=64)
def _made(url: str, endpoint: str) -> MadeFileSystem:
    parts = split_url(url)
    secrets = secrets_of(parts)
    where = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    try:
        from pyarrow.fs import FileSystem
        from pyarrow.lib import ArrowException
    except ImportError as error:
        raise StorageError(
            f"cannot read {where}: URLs need pyarrow, which the extra kstore[arrow] installs", path=where
        ) from error
    try:
        if parts.scheme == "s3":
            return MadeFileSystem(RemoteFileSystem(_s3(parts, endpoint), secrets=secrets), _key(parts))
        if parts.scheme in _OF_PYARROW:
            made, key = FileSystem.from_uri(_with_limits(parts))
        else:
            return _of_fsspec(parts, secrets)
    except (OSError, ArrowException, ValueError, ImportError, TypeError) as error:
        if isinstance(error, StorageError):
            raise
        text = masked(str(error), secrets)
        raise StorageError(f"cannot read {where}: {text}", path=where, errno=getattr(error, "errno", None)) from None
    return MadeFileSystem(RemoteFileSystem(made, secrets=secrets), key)


_OF_PYARROW = ("gs", "gcs", "abfs", "abfss", "hdfs", "viewfs")


def _key(parts: SplitResult) -> str:
    bucket, path = parts.netloc.rpartition("@")[2], unquote(parts.path).strip("/")
    return f"{bucket}/{path}" if path else bucket


def _s3(parts: SplitResult, endpoint: str) -> Any:
    """Make the file system of an s3 URL, with bounded retries and timeouts, which pyarrow's URLs cannot set.

    Args: endpoint: from the environment, for a URL without one.
    """
    from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem

    given = dict(parse_qsl(parts.query))
    options: dict[str, Any] = {
        "retry_strategy": AwsStandardS3RetryStrategy(max_attempts=MOST_ATTEMPTS),
        "request_timeout": _REQUEST_TIMEOUT_S,
        "connect_timeout": _CONNECT_TIMEOUT_S,
    }
    options |= {name: given.pop(name) for name in _S3_TEXTS if name in given}
    options |= {name: float(given.pop(name)) for name in _S3_NUMBERS if name in given}
    options |= {name: given.pop(name).lower() in ("", "1", "true") for name in _S3_FLAGS if name in given}
    user, _, password = parts.netloc.rpartition("@")[0].partition(":")
    access_key, secret_key = (
        given.pop(name, unquote(text)) for name, text in (("access_key", user), ("secret_key", password))
    )
    if access_key:
        options |= {"access_key": access_key, "secret_key": secret_key}
    if given:
        known = ", ".join((*_S3_TEXTS, *_S3_NUMBERS, *_S3_FLAGS, "access_key", "secret_key"))
        raise ValueError(f"unknown option {', '.join(sorted(given))}; an s3 URL takes {known}")
    if endpoint and "endpoint_override" not in options:
        options |= _endpoint_options(endpoint)
    if "region" not in options and "endpoint_override" not in options and not has_environment_region():
        options["region"] = region_of_bucket(parts.netloc.rpartition("@")[2])
    return S3FileSystem(**options)


def environment_endpoint() -> str:
    """Return the S3 endpoint in the environment variables of AWS's SDKs, which pyarrow ignores; "" if there is none."""
    if (variable("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS") or "").lower() == "true":
        return ""
    return variable("AWS_ENDPOINT_URL_S3") or variable("AWS_ENDPOINT_URL") or ""


def has_environment_region() -> bool:
    """Whether the environment names a region of AWS."""
    return any(variable(name) for name in ("AWS_REGION", "AWS_DEFAULT_REGION"))


def region_of_bucket(bucket: str) -> str:
    """Return the region of an AWS bucket.  Raises: OSError.  Cost: 1 request."""
    from pyarrow.fs import resolve_s3_region

    region: str = resolve_s3_region(bucket)
    return region


def _endpoint_options(endpoint: str) -> dict[str, str]:
    """Return pyarrow's options for an endpoint, a URL of http or https."""
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(
            f"AWS_ENDPOINT_URL or AWS_ENDPOINT_URL_S3: expected a URL of http or https, found {endpoint!r}"
        )
    return {"scheme": parts.scheme, "endpoint_override": f"{parts.netloc}{parts.path.rstrip('/')}"}


def _with_limits(parts: SplitResult) -> str:
    """Return the URL for pyarrow; Google's client would otherwise retry for 15 minutes."""
    given = dict(parse_qsl(parts.query))
    if parts.scheme in ("gs", "gcs"):
        given.setdefault("retry_limit_seconds", _GCS_RETRIES_S)
    return url_text(parts._replace(query=urlencode(given)))


def url_text(parts: SplitResult) -> str:
    """Return a URL without its fragment; urllib leaves out the slashes of a host that is empty."""
    query = f"?{parts.query}" if parts.query else ""
    return f"{parts.scheme}://{parts.netloc}{parts.path}{query}"


def _of_fsspec(parts: SplitResult, secrets: Iterable[str]) -> MadeFileSystem:
    from pyarrow.fs import FSSpecHandler, PyFileSystem

    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        known = ", ".join(("file", "s3", *_OF_PYARROW))
        raise ValueError(
            f"pyarrow reads {known}; other schemes need fsspec, which the extra kstore[fsspec] installs"
        ) from error
    opened, key = url_to_fs(url_text(parts._replace(query="")), **dict(parse_qsl(parts.query)))
    made = PyFileSystem(FSSpecHandler(opened))
    return MadeFileSystem(RemoteFileSystem(made, secrets=secrets, unquotes=False, forget=opened.invalidate_cache), key)
