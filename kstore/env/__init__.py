"""The operating system: all access to files, local ones and those of object stores, path arithmetic, and clocks.

No module outside of this package touches os, fcntl or mmap; only filesystems.py imports pyarrow.fs, only objects/
obstore. Each gets an Env, so that a test can pass one that fails, returns wrong answers or counts calls. locate()
chooses the Env of a path or URL.
"""

from kstore.env.base import (
    ENOENT,
    NO_FILE,
    UNKNOWN_FILE,
    Closing,
    FileIdentity,
    FileKind,
    FileStatus,
    Identity,
    ObjectIdentity,
    ReadFile,
    StrPath,
    is_same_file,
    join_path,
    path_list,
    split_path,
)
from kstore.env.choosing import Location, is_http, is_local, locate, portable, shown_path
from kstore.env.env import Env, EnvMaker, is_settled
from kstore.env.files import (
    OPEN_FILES_LIMIT,
    REWRITTEN_FILES,
    REWRITTEN_FILES_LIMIT,
    LocalFile,
    LockFile,
    NewFile,
    WriteFile,
    plain_writer,
    positioned,
    send_parts,
    writers_limit,
)
from kstore.env.local import (
    DEFAULT_ENV,
    NO_DESCRIPTOR,
    LocalEnv,
    absolute_path,
    lines_of,
    open_foreign,
    size_of_open,
)
from kstore.env.opened import OpenFiles, check_in_place, check_listed, open_listed
from kstore.env.watching import Arrivals, DirectoryWatch, Listeners, LiveArrivals, PollInterval

__all__ = [
    "DEFAULT_ENV",
    "ENOENT",
    "NO_DESCRIPTOR",
    "NO_FILE",
    "OPEN_FILES_LIMIT",
    "REWRITTEN_FILES",
    "REWRITTEN_FILES_LIMIT",
    "UNKNOWN_FILE",
    "Arrivals",
    "Closing",
    "DirectoryWatch",
    "Env",
    "EnvMaker",
    "FileIdentity",
    "FileKind",
    "FileStatus",
    "Identity",
    "Listeners",
    "LiveArrivals",
    "LocalEnv",
    "LocalFile",
    "Location",
    "LockFile",
    "NewFile",
    "ObjectIdentity",
    "OpenFiles",
    "PollInterval",
    "ReadFile",
    "StrPath",
    "WriteFile",
    "absolute_path",
    "check_in_place",
    "check_listed",
    "is_http",
    "is_local",
    "is_same_file",
    "is_settled",
    "join_path",
    "lines_of",
    "locate",
    "open_foreign",
    "open_listed",
    "path_list",
    "plain_writer",
    "portable",
    "positioned",
    "send_parts",
    "shown_path",
    "size_of_open",
    "split_path",
    "writers_limit",
]
