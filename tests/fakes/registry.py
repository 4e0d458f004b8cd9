"""A schema registry on loopback that answers as Confluent's, Karapace or Redpanda, or wrongly."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

Answer = tuple[int, bytes]


class FakeRegistry:
    """The answers of a registry.

    Attributes: schemas: as a registry lists them, with deleted; levels: of compatibility, by subject; has_list: whether
    it lists all schemas at once, and in pages, of at most most_on_page schemas; knows_all_contexts: whether a prefix
    lists those of all contexts, or none, as of Apicurio; hides_deleted: whether deleted versions are named, and given
    by their ids alone, as Apicurio does with those of a subject that has no others; credentials: the header that it
    asks for, None for none; fault: called with the number and the path of each request, returns an answer or None;
    paths: of all requests.
    """

    def __init__(self, schemas: list[dict[str, Any]], levels: dict[str, str] | None = None) -> None:
        self.schemas = schemas
        self.levels = levels or {}
        self.has_list = True
        self.has_pages = True
        self.knows_all_contexts = True
        self.hides_deleted = False
        self.most_on_page = 1000
        self.authorization: str | None = None
        self.fault: Callable[[int, str], Answer | None] = lambda _number, _path: None
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.url = ""

    def answer(self, target: str, headers: dict[str, str]) -> Answer:
        self.paths.append(target)
        self.headers.append(headers)
        faulty = self.fault(len(self.paths), target)
        if faulty is not None:
            return faulty
        if self.authorization is not None and headers.get("Authorization") != self.authorization:
            return 401, b"{}"
        parts = urlsplit(target)
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        found = self._found([unquote(each) for each in parts.path.strip("/").split("/")], query)
        return (404, b'{"error_code": 404}') if found is None else (200, json.dumps(found).encode())

    def _found(self, path: list[str], query: dict[str, str]) -> Any:
        live = [each for each in self.schemas if query.get("deleted") == "true" or not each.get("deleted")]
        shown = [{name: value for name, value in each.items() if name != "deleted"} for each in live]
        match path:
            case ["schemas"] if not self.knows_all_contexts:
                return []
            case ["schemas"] if self.has_list:
                start = int(query["offset"]) if self.has_pages else 0
                limit = min(int(query["limit"]), self.most_on_page)
                return shown[start : start + limit] if self.has_pages else shown
            case ["subjects"]:
                return list(dict.fromkeys(each["subject"] for each in shown))
            case ["subjects", subject, "versions"]:
                return [each["version"] for each in shown if each["subject"] == subject] or None
            case ["subjects", subject, "versions", version]:
                given = [each for each in live if not (self.hides_deleted and each.get("deleted"))]
                return next((e for e in given if (e["subject"], str(e["version"])) == (subject, version)), None)
            case ["schemas", "ids", schema_id, "versions"]:
                of_id = [each for each in shown if str(each["id"]) == schema_id]
                return [{name: each[name] for name in ("subject", "version")} for each in of_id] or None
            case ["schemas", "ids", schema_id]:
                of_id = [each for each in self.schemas if str(each["id"]) == schema_id]
                kept = ("schema", "schemaType", "references", "guid")
                return {name: of_id[0][name] for name in kept if name in of_id[0]} if of_id else None
            case ["config"]:
                return {"compatibilityLevel": self.levels[""]} if "" in self.levels else None
            case ["config", subject] if subject in self.levels:
                return {"compatibilityLevel": self.levels[subject]}
        return None


@contextmanager
def serving(registry: FakeRegistry) -> Iterator[FakeRegistry]:
    """Context manager: serve a registry, and set its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = registry.answer(self.path, dict(self.headers))
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", body.decode())
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    registry.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield registry
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
