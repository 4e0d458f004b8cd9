"""GET over HTTP, with bounds on time and bytes, and no secret in an error."""

from __future__ import annotations

import errno
from base64 import b64encode
from http.client import HTTPException, HTTPMessage
from typing import IO, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.request import HTTPRedirectHandler, Request, build_opener

from kstore.env.filesystems import without_secrets
from kstore.env.process import SYSTEM_CLOCK
from kstore.errors import MemoryLimitError, StorageError

# For one answer, and for its next bytes.
_ANSWER_MS, _SILENCE_S = 60_000, 10.0
_ATTEMPTS = 2
_CHUNK_BYTES = 1 << 16
_TOO_MANY_REQUESTS, _SERVER_ERRORS = 429, 500


class HttpAnswer(NamedTuple):
    """The status and the body of an answer."""

    status: int
    body: bytes


class _NoRedirects(HTTPRedirectHandler):
    """Follows no redirect: the credentials are for the host that they were given for."""

    def redirect_request(
        self, _req: Request, _fp: IO[bytes], _code: int, _msg: str, _headers: HTTPMessage, _newurl: str
    ) -> None:
        return None


def http_get(url: str, *, credentials: str | None, most_bytes: int) -> HttpAnswer:
    """Return the answer to a GET. What a server fails to answer is asked for once more; no redirect is followed.

    Args: credentials: USER:PASSWORD for basic authentication.
    Raises: StorageError without an answer; MemoryLimitError for one of more than most_bytes. Neither has credentials.
    Cost: at most two minutes.
    """
    headers = {"Accept": "application/json"}
    if credentials is not None:
        encoded = b64encode(credentials.encode("utf-8", "surrogateescape"))
        headers["Authorization"] = f"Basic {encoded.decode('ascii')}"
    shown = without_secrets(url)
    reason = ""
    for _ in range(_ATTEMPTS):
        try:
            answer = _answer(Request(url, headers=headers), shown, most_bytes)
        except (URLError, HTTPException, OSError, ValueError) as error:
            if isinstance(error, StorageError):
                raise
            reason = str(getattr(error, "reason", error)) or type(error).__name__
            continue
        if answer.status != _TOO_MANY_REQUESTS and answer.status < _SERVER_ERRORS:
            return answer
        reason = f"status {answer.status}"
    raise StorageError(f"{shown} gave no answer: {reason}", path=shown, errno=errno.EIO)


def _answer(request: Request, shown: str, most_bytes: int) -> HttpAnswer:
    end_ms = SYSTEM_CLOCK.monotonic_ms() + _ANSWER_MS
    try:
        response = build_opener(_NoRedirects).open(request, timeout=_SILENCE_S)
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
            if SYSTEM_CLOCK.monotonic_ms() > end_ms:
                raise StorageError(
                    f"{shown} was not done with its answer after {_ANSWER_MS} ms", path=shown, errno=errno.ETIMEDOUT
                )
        return HttpAnswer(response.status or 0, bytes(body))
