"""Goal: the services of examples/programs answer, also while the disk or the writer does not, and after a fork.
Method: FastAPI's client; gunicorn and uvicorn with two workers on a Unix socket, whose writer is killed; forks."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager

import httpx
import pytest

import kstore
from tests.examples.conftest import PROGRAMS, ROOT, Program
from tests.examples.gate import PATIENCE_S
from tests.fakes.waiting import wait_until

WORKERS = 2

# FastAPI


@pytest.fixture
def fastapi_service(tmp_path, monkeypatch):
    testclient = pytest.importorskip("fastapi.testclient")
    monkeypatch.setenv("KSTORE_DIRECTORY", str(tmp_path / "unused"))
    from examples.programs.fastapi_service import make_app

    with testclient.TestClient(make_app(str(tmp_path / "root"), buffer_memory=8 * 1024, max_block_ms=50)) as client:
        yield client


def test_events_are_posted_read_and_streamed(fastapi_service):
    for number in range(3):
        posted = fastapi_service.post("/events", json={"key": "k", "text": f"event {number}"})
        assert (posted.status_code, posted.json()["offset"]) == (201, number)
    found = fastapi_service.get("/events", params={"start": 1}).json()
    assert [event["text"] for event in found] == ["event 1", "event 2"]
    assert fastapi_service.get("/events", params={"limit": 1}).json()[0]["offset"] == 0
    streamed = fastapi_service.get("/stream", params={"start": 1, "patience": 0.05}).text.splitlines()
    assert [json.loads(line)["offset"] for line in streamed] == [1, 2]


def test_a_full_buffer_is_a_503_and_reads_go_on(fastapi_service, gate):
    gate.let_one()
    assert fastapi_service.post("/events", json={"key": "k", "text": "first"}).status_code == 201
    statuses = []
    posts = [
        threading.Thread(
            target=lambda: statuses.append(
                fastapi_service.post("/events", json={"key": "k", "text": "x" * 1000}).status_code
            )
        )
        for _ in range(16)
    ]
    for post in posts:
        post.start()
    wait_until(lambda: 503 in statuses)
    assert [event["text"] for event in fastapi_service.get("/events").json()] == ["first"]
    gate.open()
    for post in posts:
        post.join()
    assert set(statuses) == {201, 503}
    assert len(fastapi_service.get("/events").json()) == 1 + statuses.count(201)


# gunicorn and uvicorn: workers that read, and one writer


@contextmanager
def served(root, sockets, *command):
    """Run a server on a Unix socket; yield a client."""
    pytest.importorskip(command[0])
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "KSTORE_DIRECTORY": str(root),
        "KSTORE_SOCKET": str(sockets / "writer"),
    }
    process = subprocess.Popen([sys.executable, "-m", *command], env=environment, stderr=subprocess.PIPE)
    transport = httpx.HTTPTransport(uds=str(sockets / "http"))
    with process, httpx.Client(transport=transport, base_url="http://service", timeout=PATIENCE_S) as client:
        try:
            # uvicorn has one line for each worker, once its lifespan began.
            for _ in range(WORKERS if command[0] == "uvicorn" else 1):
                assert any(b"Listening at" in line or b"startup complete" in line for line in process.stderr)
            yield client
        finally:
            process.send_signal(signal.SIGTERM)
            process.stderr.read()


def by_gunicorn(root, sockets):
    bind = "--bind", f"unix:{sockets / 'http'}"
    return served(root, sockets, "gunicorn", "--chdir", str(PROGRAMS), "--workers", "2", *bind, "gunicorn_service:app")


def by_uvicorn(root, sockets):
    options = "--app-dir", str(PROGRAMS), "--workers", str(WORKERS), "--uds", str(sockets / "http"), "--no-access-log"
    return served(root, sockets, "uvicorn", *options, "uvicorn_service:app")


def posted(client, number):
    return client.post("/", content=str(number))


def numbers(client):
    return client.get("/").json()["numbers"]


def test_workers_read_while_the_writer_is_killed_and_write_when_there_is_another(start, tmp_path):
    root = tmp_path / "root"
    writer = start("writer", root, tmp_path / "writer")
    with by_gunicorn(root, tmp_path) as client:
        assert [posted(client, number).json()["offset"] for number in range(5)] == [0, 1, 2, 3, 4]
        assert numbers(client) == [0, 1, 2, 3, 4]
        writer.kill()
        assert posted(client, 5).status_code == 503
        assert numbers(client)[:5] == [0, 1, 2, 3, 4]
        writer = start("writer", root, tmp_path / "writer")
        # Each of the two workers may find once that its connection has ended.
        wait_until(lambda: posted(client, 6).status_code == 201)
        assert numbers(client)[-1] == 6
        assert posted(client, "no number").status_code == 400
    writer.terminate()
    with kstore.open_store(root, "a") as store:
        assert len(store.log("numbers")) >= 6


def test_each_worker_of_uvicorn_reads_what_any_of_them_had_written(start, tmp_path):
    root = tmp_path / "root"
    writer = start("writer", root, tmp_path / "writer")
    with by_uvicorn(root, tmp_path) as client:
        # A connection of its own for each request, so that another worker may take it.
        client.headers["Connection"] = "close"
        workers, offsets = set(), []

        def post():
            answer = client.post("/numbers", json={"number": len(offsets)})
            assert answer.status_code == 201
            workers.add(answer.json()["worker"])
            offsets.append(answer.json()["offset"])
            return len(workers) == WORKERS

        wait_until(post)
        readers = set()

        def read():
            answer = client.get("/numbers").json()
            assert answer["numbers"] == offsets
            readers.add(answer["worker"])
            return readers == workers

        wait_until(read)
        writer.kill()
        assert client.post("/numbers", json={"number": 7}).status_code == 503
        assert client.get("/numbers").json()["numbers"] == offsets
        os.kill(min(workers), signal.SIGKILL)
        wait_until(lambda: client.get("/numbers", params={"start": 1}).json()["numbers"] == offsets[1:])


# fork


def in_child(function):
    """Return what a child made by fork() returns."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    child = context.Process(target=lambda: theirs.send(function()))
    child.start()
    found = ours.recv()
    child.join()
    return found


def raised(function):
    try:
        function()
    except kstore.KStoreError as error:
        return type(error).__name__


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_made_by_fork_can_read_and_not_write_and_leaves_the_parent_alone(tmp_path):
    with kstore.open_store(tmp_path, "a") as store, kstore.Producer(store) as producer:
        store.create_topic("t")
        producer.send("t", b"of the parent").result()
        assert in_child(lambda: raised(lambda: producer.send("t", b"x").result())) == "ProducerClosedError"
        assert in_child(lambda: raised(lambda: store.log("t").append(kstore.Record(value=b"x")))) == "LogLockedError"

        def read():
            with kstore.open_store(tmp_path) as own:
                return [record.value for record in own["t"]]

        assert in_child(read) == [b"of the parent"]
        assert producer.send("t", b"again").result().offset == 1


def values_of(root):
    with kstore.open_store(root) as own:
        return [record.value for record in own["t"]]


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_workers_of_multiprocessing_read_while_the_parent_writes(tmp_path, method):
    with kstore.open_store(tmp_path, "a") as store, kstore.Producer(store) as producer:
        store.create_topic("t")
        with multiprocessing.get_context(method).Pool(1) as pool:
            for number in range(2):
                producer.send("t", b"%d" % number).result()
                assert len(pool.apply(values_of, (tmp_path,))) == number + 1


def test_a_program_that_waits_for_the_lock_takes_over(tmp_path):
    """What a server does that is restarted while the one before still ends."""
    holding = Program("-c", HOLDER, str(tmp_path))
    assert holding.hear() == "ready"
    taking = threading.Thread(target=holding.terminate)
    taking.start()
    with kstore.open_store(tmp_path, "a", timeout=30) as store:
        assert store.topics == ("t",)
    taking.join()


HOLDER = """
import sys, kstore
store = kstore.open_store(sys.argv[1], "a")
store.create_topic("t")
print("ready", flush=True)
sys.stdin.read()
"""
