"""S3Server: a real S3 server on loopback that counts requests and can be told to answer wrongly."""

from __future__ import annotations

import logging
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from pyarrow import fs

SECRET = "a/very+secret=key"
_QUOTED_SECRET = "a%2Fvery%2Bsecret%3Dkey"
BUCKET = "backups"


class Request(NamedTuple):
    """One request: GET, HEAD, PUT, COPY, POST (of an upload in parts, or of keys to remove), DELETE or LIST, the key or
    prefix, and the range.
    """

    kind: str
    key: str
    range: str


# Returns None to answer as usual, or (status, headers, body).
Fault = Callable[[Request], "tuple[str, dict[str, str], bytes] | None"]


class S3Server:
    """moto's server in threads of this process.

    Attributes: requests (all since the last clear); fault (called with each request of a client); loses_answer (whether
    the answer to a request that was carried out is lost); ignores_conditions (whether a PUT is always carried out).
    """

    def __init__(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from moto.server import ThreadedMotoServer

            logging.getLogger("werkzeug").setLevel(logging.ERROR)
            self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
            self._server.start()
        self.address = "{}:{}".format(*self._server.get_host_and_port())
        self._app = self._server._server.app
        self._server._server.app = self._answer
        self.requests: list[Request] = []
        self.fault: Fault | None = None
        self.loses_answer: Callable[[Request], bool] = lambda _: False
        self.ignores_conditions = False
        self.store = fs.S3FileSystem(
            access_key="writer",
            secret_key=SECRET,
            scheme="http",
            endpoint_override=self.address,
            region="us-east-1",
            allow_bucket_creation=True,
        )
        self.store.create_dir(BUCKET)

    def stop(self) -> None:
        self._server.stop()

    def url(self, key: str = "", *, bucket: str = BUCKET, options: str = "") -> str:
        """Return the URL of a key, with the user's keys and all options."""
        place = f"reader:{_QUOTED_SECRET}@{bucket}/{key}"
        return f"s3://{place}?scheme=http&endpoint_override={self.address}&region=us-east-1{options}"

    def upload(self, directory: Path, key: str) -> None:
        """Store the files below a directory as objects below a key."""
        for path in sorted(directory.rglob("*")):
            if path.is_file():
                self.put(f"{key}/{path.relative_to(directory).as_posix()}", path.read_bytes())

    def put(self, key: str, content: bytes) -> None:
        """Store one object."""
        with self._unwatched(), self.store.open_output_stream(f"{BUCKET}/{key}") as stream:
            stream.write(content)

    def delete(self, key: str) -> None:
        """Remove one object."""
        with self._unwatched():
            self.store.delete_file(f"{BUCKET}/{key}")

    def count(self, kind: str | None = None) -> int:
        """Return how many requests there were, of one kind or of all."""
        return sum(kind in (None, request.kind) for request in self.requests)

    @contextmanager
    def failing(self, fault: Fault) -> Iterator[None]:
        """Context manager: answer with a fault."""
        self.fault = fault
        try:
            yield
        finally:
            self.fault = None

    @contextmanager
    def _unwatched(self) -> Iterator[None]:
        fault, self.fault = self.fault, None
        kept = len(self.requests)
        try:
            yield
        finally:
            del self.requests[kept:]
            self.fault = fault

    def _answer(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        path, query = environ["PATH_INFO"], environ.get("QUERY_STRING", "")
        kind = environ["REQUEST_METHOD"]
        if "list-type=2" in query:
            kind, path = "LIST", query
        elif "HTTP_X_AMZ_COPY_SOURCE" in environ:
            kind = "COPY"
        request = Request(kind, path.removeprefix(f"/{BUCKET}/"), environ.get("HTTP_RANGE", ""))
        self.requests.append(request)
        wrong = None if self.fault is None else self.fault(request)
        if self.ignores_conditions:
            for name in ("HTTP_IF_MATCH", "HTTP_IF_NONE_MATCH"):
                environ.pop(name, None)
        if wrong is None and self.loses_answer(request):
            list(self._app(environ, lambda *_: None))
            wrong = error("500 Internal Server Error", "InternalError", "lost")
        if wrong is None:
            return self._app(environ, start)  # type: ignore[no-any-return]
        status, headers, body = wrong
        start(status, list({"Content-Length": str(len(body)), **headers}.items()))
        return [body]


def times(count: int, fault: Fault) -> Fault:
    """Return a fault that happens this often, and then no more."""
    left = [count]
    lock = threading.Lock()

    def limited(request: Request) -> tuple[str, dict[str, str], bytes] | None:
        with lock:
            if not left[0]:
                return None
            found = fault(request)
            left[0] -= found is not None
            return found

    return limited


def of_kind(kind: str, answer: tuple[str, dict[str, str], bytes]) -> Fault:
    """Return a fault of every request of one kind."""
    return lambda request: answer if request.kind == kind else None


def error(status: str, code: str, message: str) -> tuple[str, dict[str, str], bytes]:
    """Return an answer as S3 gives it for an error."""
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()
    return status, {"Content-Type": "application/xml"}, body


def silent(seconds: float) -> Fault:
    """Return a fault that only waits."""

    def wait(_request: Request) -> None:
        time.sleep(seconds)

    return wait
