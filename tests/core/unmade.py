"""Calls every member of every class of the core, and of the classes built on them, on objects that __new__ alone made.

As a program: `python -m tests.core.unmade` prints each member whose call ends the process by a signal. Those of a class
are called in a child process, one after another, with arguments of the types that _core.pyi names, and with other ones;
a member that ends its process, or waits, is followed by another process for the rest.
"""

from __future__ import annotations

import ast
import copy
import inspect
import os
import pickle
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

from kstore import _core
from tests.fakes.pooling import open_batch

HANG_S = 2
PROTOCOLS: dict[str, Callable[[Any], object]] = {
    "repr()": repr,
    "len()": len,
    "bool()": bool,
    "hash()": hash,
    "iter()": lambda made: list(islice(iter(made), 3)),
    "next()": next,
    "memoryview()": memoryview,
    "==": lambda made: made == unmade(type(made)),
    "in": lambda made: 1 in made,
    "[0]": lambda made: made[0],
    "with": lambda made: made.__enter__() and made.__exit__(None, None, None),
    "copy()": copy.copy,
    "pickle": pickle.dumps,
    "+": lambda made: made + made,
}
ANY = [None, 1, b"v" * 100, [], (), {}, "v", 1.0, -1, 2**70]


def unmade(kind: type) -> Any:
    """Return an object of a class without a call of its __init__."""
    return kind.__new__(kind)


def classes() -> list[type]:
    """Return the classes of the core that __new__ can make an object of, and the subclasses of them."""
    found = [kind for kind in vars(_core).values() if isinstance(kind, type) and kind.__module__ == _core.__name__]
    for kind in found:
        found += [other for other in kind.__subclasses__() if other not in found]
    return [kind for kind in found if can_be_unmade(kind)]


def can_be_unmade(kind: type) -> bool:
    try:
        unmade(kind)
    except TypeError:
        return False
    return True


def annotations() -> dict[tuple[str, str], dict[str, str]]:
    """Return the types of the arguments of each method and function in _core.pyi, by the names of class and method."""
    tree = ast.parse(Path(_core.__file__).with_name("_core.pyi").read_text())
    found = {}
    for kind in tree.body:
        owner, ones = (kind.name, kind.body) if isinstance(kind, ast.ClassDef) else ("", [kind])
        for one in ones:
            if isinstance(one, ast.FunctionDef):
                arguments = [*one.args.posonlyargs, *one.args.args, *one.args.kwonlyargs]
                found[owner, one.name] = {
                    argument.arg: ast.unparse(argument.annotation) for argument in arguments if argument.annotation
                }
    return found


def values_of(annotation: str) -> list[Any]:
    """Return values of the types that an annotation names."""
    found: list[Any] = []
    for part in annotation.split(" | "):
        kind = getattr(_core, part.strip("'"), None)
        if isinstance(kind, type):
            found += [unmade(kind)] if can_be_unmade(kind) else []
        elif part.startswith("Callable"):
            found.append(lambda *_, **__: 1)
        else:
            found += {"int": [1, 0], "bytes": [b"v"], "Buffer": [b"v" * 100, b""], "str": ["v"], "bool": [True]}.get(
                part, [[], [None]] if part.startswith(("list", "Sequence", "Iterable")) else [None, open_batch()]
            )
    return found


ANNOTATIONS = annotations()


def calls(owner: Any, name: str) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Yield arguments to call a method of an object, or a function of the core, with."""
    types: dict[str, str] = ANNOTATIONS.get(("", name), {}) if owner is _core else {}
    for kind in type(owner).__mro__:
        types = types or ANNOTATIONS.get((kind.__name__, name), {})
    try:
        parameters = list(inspect.signature(getattr(owner, name)).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    kinds = [kind for kind in classes() if kind.__module__ == _core.__name__]
    for value in [*ANY, None, *map(unmade, kinds), [None], [unmade(_core.ProducerBatchCore)], owner]:
        for pick in (0, -1):
            given, named = [], {}
            for one in parameters:
                chosen = values_of(types[one.name])[pick] if one.name in types and value is None else value
                if one.kind is one.KEYWORD_ONLY:
                    named[one.name] = chosen
                elif one.kind is not one.VAR_KEYWORD:
                    given.append(chosen)
            yield tuple(given), named
    for count in range(4):
        yield (1,) * count, {}


def attempt(call: Callable[[], object]) -> None:
    with suppress(Exception, SystemExit):
        call()


def use(kind: type, name: str) -> None:
    """Get, set and call one member of an object that was not made."""
    made = unmade(kind)
    attempt(lambda: getattr(made, name))
    for value in ANY:
        attempt(lambda value=value: setattr(made, name, value))
    if not callable(getattr(kind, name, None)):
        return
    made = unmade(kind)
    for given, named in calls(made, name):
        attempt(lambda given=given, named=named: getattr(made, name)(*given, **named))
        fresh = unmade(kind)
        attempt(lambda fresh=fresh, given=given, named=named: getattr(fresh, name)(*given, **named))


def use_protocol(kind: type, call: Callable[[Any], object]) -> None:
    attempt(lambda: call(unmade(kind)))


def use_function(name: str) -> None:
    for given, named in calls(_core, name):
        attempt(lambda given=given, named=named: getattr(_core, name)(*given, **named))


def ended(works: Sequence[Callable[[], object]]) -> Iterator[tuple[int, int]]:
    """Do works in child processes; yield the number of each that ended its process by a signal, and the signal.

    A call that waits is ended after some time, and counts as one that returned.
    """
    at = 0
    while at < len(works):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                for work in works[at:]:
                    signal.setitimer(signal.ITIMER_REAL, HANG_S)
                    work()
                    os.write(writer, b".")
            finally:
                os._exit(0)
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            at += len(pipe.read())
        _, status = os.waitpid(child, 0)
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        if number not in (0, signal.SIGALRM):
            yield at, number
        at += 1


def members(kind: type) -> list[str]:
    left_out = {"__class__", "__new__", "__init_subclass__", "__subclasshook__", "__dict__", "__del__"}
    return sorted({name for one in kind.__mro__ if one is not object for name in vars(one)} - left_out)


def report(works: Mapping[str, Callable[[], object]]) -> None:
    names = list(works)
    for at, number in ended(list(works.values())):
        sys.stdout.write(f"{names[at]}: {signal.Signals(number).name}\n")
        sys.stdout.flush()


def main() -> None:
    for name in ("consumer", "log", "producer", "record", "staging"):
        import_module(f"kstore.{name}")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    for name, function in vars(_core).items():
        if callable(function) and not isinstance(function, type):
            report({f"{name}()": partial(use_function, name)})
    for kind in classes():
        works: dict[str, Callable[[], object]] = {
            f"{kind.__name__}.{name}": partial(use, kind, name) for name in members(kind)
        }
        works |= {f"{kind.__name__} {name}": partial(use_protocol, kind, call) for name, call in PROTOCOLS.items()}
        report(works)


if __name__ == "__main__":
    main()
