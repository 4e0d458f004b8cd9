"""GET over HTTP, with bounds on time and bytes, and no secret in an error."""

from __future__ import annotations

import errno
import io
import socket
from base64 import b64encode
from http.client import HTTPConnection, HTTPException, HTTPMessage, HTTPResponse, HTTPSConnection, IncompleteRead
from typing import IO, Any, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.request import HTTPHandler, HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from kstore.env.filesystems import without_secrets
from kstore.env.process import SYSTEM_CLOCK
from kstore.errors import MemoryLimitError, StorageError

# For one answer once a server is connected, and for its next bytes.
_ANSWER_MS, _SILENCE_S = 60_000, 10.0
_ATTEMPTS = 2
_MOST_WAIT_MS = 5000
_CHUNK_BYTES = 1 << 16
_TOO_MANY_REQUESTS, _SERVER_ERRORS = 429, 500


class HttpAnswer(NamedTuple):
    """The status and the body of an answer. wait_ms: how long the server asks to wait before the next request."""

    status: int
    body: bytes
    wait_ms: int = 0


class _NoRedirects(HTTPRedirectHandler):
    """Follows no redirect: the credentials are for the host that they were given for."""

    def redirect_request(
        self, _req: Request, _fp: IO[bytes], _code: int, _msg: str, _headers: HTTPMessage, _newurl: str
    ) -> None:
        return None


class _Bounded(io.RawIOBase):
    """The bytes that a socket receives, until an end."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__()
        self._socket = sock
        self._bytes = sock.makefile("rb", buffering=0)
        self._end_ms = SYSTEM_CLOCK.monotonic_ms() + _ANSWER_MS

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        remaining_ms = self._end_ms - SYSTEM_CLOCK.monotonic_ms()
        if remaining_ms <= 0:
            raise TimeoutError(f"the answer was not complete after {_ANSWER_MS} ms")
        self._socket.settimeout(min(_SILENCE_S, remaining_ms / 1000))
        return self._bytes.readinto(buffer)

    def close(self) -> None:
        self._bytes.close()
        super().close()


class _Response(HTTPResponse):
    """An answer whose headers and body have one end."""

    def __init__(self, sock: socket.socket, *args: Any, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        self.fp.close()
        self.fp = io.BufferedReader(_Bounded(sock))


class _Connection(HTTPConnection):
    response_class = _Response


class _SecureConnection(HTTPSConnection):
    response_class = _Response


class _Plain(HTTPHandler):
    def http_open(self, req: Request) -> HTTPResponse:
        return self.do_open(_Connection, req)


class _Secure(HTTPSHandler):
    def https_open(self, req: Request) -> HTTPResponse:
        return self.do_open(_SecureConnection, req)


def http_get(url: str, *, credentials: str | None, most_bytes: int) -> HttpAnswer:
    """Return the answer to a GET. What a server fails to answer is asked for once more; no redirect is followed.

    Args: credentials: USER:PASSWORD for basic authentication.
    Raises: StorageError without an answer; MemoryLimitError for one of more than most_bytes. Neither has credentials.
    Cost: at most two minutes, and ten seconds for each address of the host that does not answer.
    """
    headers = {"Accept": "application/json"}
    if credentials is not None:
        encoded = b64encode(credentials.encode("utf-8", "surrogateescape"))
        headers["Authorization"] = f"Basic {encoded.decode('ascii')}"
    shown = without_secrets(url)
    reason, wait_ms = "", 0
    for _ in range(_ATTEMPTS):
        SYSTEM_CLOCK.sleep_ms(wait_ms)
        try:
            answer = _answer(Request(url, headers=headers), shown, most_bytes)
        except (URLError, HTTPException, OSError, ValueError) as error:
            if isinstance(error, StorageError):
                raise
            reason, wait_ms = str(getattr(error, "reason", error)) or type(error).__name__, 0
            continue
        if answer.status != _TOO_MANY_REQUESTS and answer.status < _SERVER_ERRORS:
            return answer
        reason, wait_ms = f"status {answer.status}", answer.wait_ms
    raise StorageError(f"{shown} gave no answer: {reason}", path=shown, errno=errno.EIO)


def _answer(request: Request, shown: str, most_bytes: int) -> HttpAnswer:
    try:
        response = build_opener(_NoRedirects, _Plain, _Secure).open(request, timeout=_SILENCE_S)
    except HTTPError as error:
        response = error
    body = bytearray()
    with response:
        while chunk := response.read1(_CHUNK_BYTES) if hasattr(response, "read1") else response.read(_CHUNK_BYTES):
            body += chunk
            if len(body) > most_bytes:
                raise MemoryLimitError(
                    f"the answer of {shown} has more than {most_bytes} bytes",
                    path=shown,
                    limit=most_bytes,
                    found=len(body),
                )
        left = getattr(response, "length", None)
        if left:
            raise IncompleteRead(bytes(body), left)
        seconds = response.headers.get("Retry-After", "")
        wait_ms = min(int(seconds) * 1000, _MOST_WAIT_MS) if seconds.isdecimal() and len(seconds) < 10 else 0
        return HttpAnswer(response.status or 0, bytes(body), wait_ms)
