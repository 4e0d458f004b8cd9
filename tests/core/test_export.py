"""Goal: a batch exported by Arrow's C data interface holds its buffers just as long as somebody keeps a part of it.
Method: a bytearray can't be resized while its bytes are held; ctypes reads and releases the struct, without the GIL."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import Any, Final

import pyarrow as pa
import pytest

from kstore import _core

ROWS = 100
SCHEMA = pa.schema(
    [
        pa.field("number", pa.int64()),
        pa.field("list", pa.list_(pa.field("element", pa.struct([pa.field("text", pa.string())])))),
    ]
)
NUMBERS = b"".join(number.to_bytes(8, "little") for number in range(ROWS))


class ArrowArray(ctypes.Structure):
    _fields_: Final = [
        *((name, ctypes.c_int64) for name in ("length", "null_count", "offset", "n_buffers", "n_children")),
        *((name, ctypes.c_void_p) for name in ("buffers", "children", "dictionary", "release", "private_data")),
    ]

    def give_back(self) -> None:
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.release)(ctypes.addressof(self))


def is_held(memory: bytearray) -> bool:
    try:
        memory.append(0)
    except BufferError:
        return True
    memory.pop()
    return False


def list_column(text: bytes | bytearray) -> tuple[int, int, Any, Any]:
    """Return a column of one list of one letter for each row."""
    offsets = b"".join(number.to_bytes(4, "little") for number in range(ROWS + 1))
    letters = (ROWS, 0, (None, offsets, text), ())
    return ROWS, 0, (None, offsets), ((ROWS, 0, (None,), (letters,)),)


def exported(numbers: bytearray, text: bytes | bytearray = b"x" * ROWS) -> _core.ExportedBatch:
    return _core.ExportedBatch([(ROWS, 0, (None, numbers), ()), list_column(text)], row_count=ROWS)


def imported(batch: _core.ExportedBatch, schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    return pa.RecordBatch._import_from_c(batch.address, schema)


def test_numbers_and_nested_columns_arrive() -> None:
    batch = imported(exported(bytearray(NUMBERS)))
    batch.validate(full=True)
    assert batch.to_pylist() == [{"number": number, "list": [{"text": "x"}]} for number in range(ROWS)]


def test_buffers_are_shared_and_held_until_the_batch_dies() -> None:
    numbers, text = bytearray(NUMBERS), bytearray(b"x" * ROWS)
    batch = imported(exported(numbers, text))
    numbers[0] = 77
    assert batch["number"][0].as_py() == 77
    assert is_held(numbers)
    assert is_held(text)
    del batch
    assert not is_held(numbers)
    assert not is_held(text)


def test_a_column_outlives_its_batch() -> None:
    numbers = bytearray(NUMBERS)
    column = imported(exported(numbers))["number"].slice(1)
    gc.collect()
    assert is_held(numbers)
    assert column.to_pylist() == list(range(1, ROWS))
    del column
    assert not is_held(numbers)


def test_what_nobody_imports_is_given_back() -> None:
    numbers = bytearray(NUMBERS)
    batch = exported(numbers)
    assert is_held(numbers)
    del batch
    assert not is_held(numbers)


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param(SCHEMA.remove(1), id="too few fields"),
        pytest.param(SCHEMA.append(pa.field("more", pa.int8())), id="too many fields"),
        pytest.param(pa.schema([SCHEMA.field(1), SCHEMA.field(0)]), id="other layouts"),
    ],
)
def test_what_an_import_refuses_is_given_back(schema: pa.Schema) -> None:
    numbers = bytearray(NUMBERS)
    with pytest.raises(pa.ArrowInvalid):
        imported(exported(numbers), schema)
    assert not is_held(numbers)


@pytest.mark.parametrize(
    ("column", "error"),
    [
        pytest.param((ROWS, 0, (None, 5), ()), TypeError, id="no buffer"),
        pytest.param((ROWS, 0, (None, memoryview(NUMBERS)[::2]), ()), BufferError, id="bytes apart"),
        pytest.param((ROWS, 0, (None,)), ValueError, id="a part missing"),
        pytest.param((1 << 63, 0, (None,), ()), OverflowError, id="length of 64 bits"),
        pytest.param((ROWS, 0, (None,), ((ROWS, 0, (1,), ()),)), TypeError, id="child without buffer"),
    ],
)
def test_a_column_that_is_none_is_refused_and_the_others_are_let_go(column: Any, error: type[Exception]) -> None:
    numbers = bytearray(NUMBERS)
    with pytest.raises(error):
        _core.ExportedBatch([(ROWS, 0, (None, numbers), ()), column], row_count=ROWS)
    assert not is_held(numbers)


def test_a_child_that_was_moved_away_keeps_the_memory_of_all() -> None:
    numbers = bytearray(NUMBERS)
    batch = exported(numbers)
    root = ArrowArray.from_address(batch.address)
    children = (ctypes.c_void_p * root.n_children).from_address(root.children)
    child = ArrowArray.from_address(children[1])
    moved = ArrowArray.from_buffer_copy(child)
    child.release = None
    root.give_back()
    assert root.release is None
    del batch
    assert is_held(numbers)
    assert (moved.length, moved.n_children) == (ROWS, 1)
    moved.give_back()
    assert moved.release is None
    assert not is_held(numbers)


def test_any_thread_may_let_go() -> None:
    memories = [bytearray(NUMBERS) for _ in range(400)]
    batches = [imported(exported(numbers)) for numbers in memories]

    def let_go() -> None:
        with suppress(IndexError):
            while True:
                batches.pop()

    threads = [threading.Thread(target=let_go) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not any(map(is_held, memories))


class ForeignThread:
    """A thread of C that releases an array; Python knows nothing of it."""

    def __init__(self, array: ArrowArray) -> None:
        self._array = array
        self._thread = ctypes.c_ulong()
        arguments = ctypes.byref(self._thread), None, ctypes.c_void_p(array.release), ctypes.byref(array)
        assert LIBC.pthread_create(*arguments) == 0

    def wait_for_its_wait(self) -> None:
        """Return when the thread waits for the GIL, if no other thread of Python may get it meanwhile."""
        while self._array.release is not None:
            pass

    def join_with_gil(self) -> bool:
        """Wait for its end without releasing the GIL; return False after a second or two."""
        end = (ctypes.c_long * 2)(int(time.time()) + 2, 0)
        return LIBC.pthread_timedjoin_np(self._thread, None, ctypes.byref(end)) == 0


LIBC = ctypes.PyDLL(None)
needs_timed_join = pytest.mark.skipif(not hasattr(LIBC, "pthread_timedjoin_np"), reason="glibc has it")


def run(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], check=True, timeout=60, capture_output=True, text=True)
    return done.stdout


def test_threads_that_python_does_not_know_release_arrays() -> None:
    memories = [bytearray(NUMBERS) for _ in range(100)]
    batches = [exported(numbers) for numbers in memories]
    for batch in batches:
        ForeignThread(ArrowArray.from_address(batch.address))
    deadline = time.monotonic() + 30
    while any(map(is_held, memories)):
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_the_exit_of_the_interpreter_waits_for_all_threads_that_release() -> None:
    """They wait for the GIL while the main thread exits, and would be ended inside of their C."""
    program = """
import sys
from tests.core.test_export import ArrowArray, ForeignThread, NUMBERS, exported
class Held(bytearray):
    def __del__(self):
        print("freed")
batches = [exported(Held(NUMBERS)) for _ in range(30)]
sys.setswitchinterval(100)
threads = [ForeignThread(ArrowArray.from_address(batch.address)) for batch in batches]
for thread in threads:
    thread.wait_for_its_wait()
"""
    assert run(program).count("freed") == 30


@needs_timed_join
def test_a_release_while_the_interpreter_exits_does_not_wait_for_the_gil() -> None:
    program = """
import atexit
def at_the_end():
    assert ForeignThread(ArrowArray.from_address(batch.address)).join_with_gil()
    print("released")
atexit.register(at_the_end)
from tests.core.test_export import ArrowArray, ForeignThread, NUMBERS, exported
batch = exported(bytearray(NUMBERS))
"""
    assert run(program) == "released\n"


def test_a_fork_during_a_release_leaves_a_child_that_exits() -> None:
    program = """
import os, signal, sys
from tests.core.test_export import ArrowArray, ForeignThread, NUMBERS, exported
sys.setswitchinterval(100)
batch = exported(bytearray(NUMBERS))
ForeignThread(ArrowArray.from_address(batch.address)).wait_for_its_wait()
child = os.fork()
if not child:
    signal.alarm(20)
else:
    assert os.waitpid(child, 0)[1] == 0
    print("child exited")
"""
    assert run(program) == "child exited\n"


def test_an_interpreter_exits_while_batches_are_held() -> None:
    program = f"""
import sys, pyarrow as pa
from kstore import _core
schema = pa.schema([("number", pa.int64())])
def batch():
    exported = _core.ExportedBatch([({ROWS}, 0, (None, bytearray({8 * ROWS})), ())], row_count={ROWS})
    return exported, pa.RecordBatch._import_from_c(exported.address, schema)
held = batch()
sys.modules["held"] = batch()
never_imported = _core.ExportedBatch([], row_count=0)
class Late:
    def __del__(self, kept=batch()):
        kept = None
late = Late()
late.itself = late
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
