"""Goal: no thread of a user leaves a lock held when an interrupt ends its wait; docs/internals/interrupts.md says why
some classes of the standard library do.
Method: read every source with ast: who names such a class, or takes a lock without `with`."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.making.collecting import over
from tests.repo.test_layering import ROOT, parsed, relative, sources, tree_of

pytestmark = pytest.mark.build

# Their methods are Python code that takes a lock; kstore/waiting.py has what stands in for them.
UNSAFE = {
    "threading": {"Barrier", "BoundedSemaphore", "Condition", "Event", "Semaphore", "Timer"},
    "concurrent.futures": {"Future", "ProcessPoolExecutor", "ThreadPoolExecutor", "as_completed", "wait"},
    "queue": {"LifoQueue", "PriorityQueue", "Queue"},
}
# (module, name): why it may.
ALLOWED = {
    ("kstore/producer/batches/waiting.py", "concurrent.futures.Future"): "as_concurrent() returns one; a thread of its "
    "own completes it, which another one replaces if the future's lock stays held",
}
PYTHON_SOURCES = sources(".py")


def unsafe_names(tree: ast.Module) -> set[str]:
    """Return the names of the standard library in UNSAFE that a module uses, under whatever name it imports them."""
    modules: dict[str, str] = {}
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {alias.asname or alias.name: alias.name for alias in node.names if alias.name in UNSAFE}
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if alias.name in UNSAFE.get(node.module or "", ()):
                    found.add(f"{node.module}.{alias.name}")
                elif f"{node.module}.{alias.name}" in UNSAFE:
                    modules[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            module = modules.get(ast.unparse(node.value))
            if module is not None and node.attr in UNSAFE[module]:
                found.add(f"{module}.{node.attr}")
    return found


def tried_locks(tree: ast.Module) -> list[int]:
    """Return the lines that take a lock only if it is free; after that call an interrupt finds no `finally` yet."""
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "acquire"
        and any(
            isinstance(argument, ast.Constant) and argument.value is False
            for argument in [*node.args, *(keyword.value for keyword in node.keywords if keyword.arg == "blocking")]
        )
    ]


@over("path", PYTHON_SOURCES, by=tree_of, label=relative)
def test_what_an_interrupted_thread_could_leave_locked_is_named_only_with_a_reason(path: Path) -> None:
    tree = parsed(path)
    assert {name for name in unsafe_names(tree) if (relative(path), name) not in ALLOWED} == set()
    assert tried_locks(tree) == []


@pytest.mark.parametrize(
    "text",
    [
        "import threading\nwoken = threading.Event()",
        "from threading import Condition",
        "from concurrent import futures\nfutures.wait([])",
        "import concurrent.futures\npool = concurrent.futures.ThreadPoolExecutor()",
        "import threading as t\nlock = t.Semaphore()",
        "import queue\nwaiting = queue.Queue()",
    ],
)
def test_name_is_found_however_it_is_imported(text: str) -> None:
    assert len(unsafe_names(ast.parse(text))) == 1


def test_plain_locks_simple_queues_and_events_of_asyncio_may_be_used() -> None:
    text = "import asyncio, threading, queue\nthreading.Lock(); threading.RLock(); asyncio.Event(); queue.SimpleQueue()"
    assert unsafe_names(ast.parse(text)) == set()


def test_every_exception_is_used() -> None:
    assert all(name in unsafe_names(parsed(ROOT / path)) for path, name in ALLOWED)


def test_lock_that_is_tried_is_found() -> None:
    assert tried_locks(ast.parse("a.acquire(blocking=False)\na.acquire()\na.acquire(False)")) == [1, 3]
