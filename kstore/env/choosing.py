"""locate: the Env of a path or URL, chosen by its scheme. Nothing else asks for schemes.

What URLs need is imported when there is one.
"""

from __future__ import annotations

import errno
import re
from typing import NamedTuple

from kstore.env.base import StrPath
from kstore.env.env import Env
from kstore.env.local import DEFAULT_ENV
from kstore.errors import StorageError

# With one slash too, as Hadoop and Databricks write file:/ and dbfs:/.
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
# How fsspec chains file systems, such as simplecache::s3://bucket.
_CHAINED_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*::(?:[A-Za-z][A-Za-z0-9+.-]*::)*[A-Za-z][A-Za-z0-9+.-]*:/")
_CHAINED = "::"
_HADOOP_NAMES = {"s3a": "s3", "s3n": "s3"}


class Location(NamedTuple):
    """The Env that reads a path or URL, and the path as this Env takes and reports it, without a URL's options and
    secrets.
    """

    env: Env
    path: str


def locate(path: StrPath, env: Env | None = None) -> Location:
    """Return the Env of a path or URL, or `env` if it is given, and the absolute path in it.

    Plain paths and file:// URLs are local. Other URLs are read through pyarrow.fs, and through fsspec if pyarrow does
    not know the scheme. Each call for such a URL returns an Env with an empty cache of listings; those of one store
    share its connections.
    Raises: TypeError for bytes paths; StorageError for an empty path, or a URL without a file system.
    Cost: no request, except to find the region of an AWS bucket if it is not given.
    """
    if env is not None:
        return Location(env, env.absolute_path(path))
    scheme = _scheme_of(path)
    if scheme is None or not isinstance(path, str):
        return Location(DEFAULT_ENV, DEFAULT_ENV.absolute_path(path))
    return _locate_url(path, scheme)


def _locate_url(path: str, scheme: str) -> Location:
    from urllib.parse import unquote

    from kstore.env.filesystems import filesystem_of, split_url, url_text, without_secrets
    from kstore.env.remote import RemoteEnv

    if scheme == _CHAINED:
        shown = without_secrets(path)
        raise StorageError(
            f"cannot read {shown}: a chain of file systems (::) is not supported", path=shown, errno=errno.EINVAL
        )
    parts = split_url(path)._replace(scheme=scheme, fragment="")
    host = parts.netloc.rpartition("@")[2]
    if scheme == "file":
        if host not in ("", "localhost"):
            shown = without_secrets(path)
            raise StorageError(f"{shown}: a file URL must name a local path", path=shown, errno=errno.EINVAL)
        return Location(DEFAULT_ENV, DEFAULT_ENV.absolute_path(unquote(parts.path)))
    parts = parts._replace(path=parts.path.rstrip("/"))
    user = parts.netloc.rpartition("@")[0].partition(":")[0] if scheme in ("abfs", "abfss") else ""
    shown = f"{scheme}://{user}{'@' if user else ''}{host}{parts.path}"
    url = url_text(parts)
    made = filesystem_of(url)
    return Location(RemoteEnv(made.filesystem, url=url, root=shown, key=made.key), shown)


def portable(path: str) -> str:
    """Return a path or URL that leads to the same files from another working directory."""
    return locate(path).path if is_local(path) else path


def is_local(path: StrPath) -> bool:
    """Whether a path or URL is of a file on this machine or in a mounted file system."""
    return _scheme_of(path) in (None, "file")


def is_http(path: StrPath) -> bool:
    """Whether a path is the URL of an HTTP server."""
    return _scheme_of(path) in ("http", "https")


def shown_path(path: str) -> str:
    """Return a path or URL for a message, without the options, which may be secret."""
    if _scheme_of(path) is None:
        return path
    from kstore.env.filesystems import without_secrets

    return without_secrets(path)


def _scheme_of(path: StrPath) -> str | None:
    """Return the scheme of a URL, None for a plain path."""
    if isinstance(path, str) and _CHAINED_URL.match(path):
        return _CHAINED
    match = _URL.match(path) if isinstance(path, str) else None
    scheme = "" if match is None else match[1].lower()
    return _HADOOP_NAMES.get(scheme, scheme) or None
