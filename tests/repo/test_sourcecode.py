"""Goal: style, types and stubs are right, and the compiled leaves never touch the interpreter.
Method: run the linters over the tree; translate the core with Cython into a scratch folder and read the C it made."""

from __future__ import annotations

import ast
import re
import shutil
from pathlib import Path

import pytest
import yaml

from tests.conftest import Translation
from tests.making.collecting import over
from tests.repo.linters import CORE_SOURCES, LINTERS, ROOT, run

pytestmark = pytest.mark.build

LEAF = re.compile(r"^cdef\s+(?:inline\s+)?[^\n=(]*?\b(\w+)\s*\([^)]*\)\s*noexcept\s+nogil\s*:", re.MULTILINE)
FUNCTION = re.compile(r"^cdef\s+(?!class\b|enum\b|struct\b|extern\b)(?:inline\s+)?[^\n=(]*?\b(\w+)\s*\(", re.MULTILINE)
C_FUNCTION = re.compile(r"^static [^;{}\n]*\b__pyx_f_6kstore_5_core_(\w+)\([^;{}\n]*\) \{$", re.MULTILINE)
PYTHON_CALL = re.compile(r"\b(Py[A-Z_]\w*|_Py\w*|__Pyx_\w+)\s*\(")
# What a build that has nothing to complain about prints.
USUAL = ("Compiling kstore/_core.pyx because", "[1/1] Cythonizing kstore/_core.pyx")
# Macros of Cython that expand to plain C: branch hints and the like.
# The last one looks into a constant table.
PLAIN_C = {"__Pyx_likely", "__Pyx_unlikely", "Py_UNICODE_ISPRINTABLE"}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", LINTERS)
def test_linter_finds_nothing(name: str) -> None:
    done = run(name)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("name", "text"), [("ruff-check", "import sys\nimport os\n"), ("ruff-format", "x  = 1\n")])
def test_linter_sees_what_is_wrong(tmp_path: Path, name: str, text: str) -> None:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "wrong.py").write_text(text)
    done = run(name, tree=tmp_path)
    assert done.returncode == 1
    assert "wrong.py" in done.stdout


def test_every_linter_is_a_hook_before_a_commit() -> None:
    (local,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert local["repo"] == "local"
    assert {hook["language"] for hook in local["hooks"]} == {"system"}
    assert {hook["pass_filenames"] for hook in local["hooks"]} == {False}
    entries = {hook["id"]: hook["entry"] for hook in local["hooks"]}
    assert entries == {name: f".venv/bin/python -m tests.repo.linters {name}" for name in LINTERS}


def source_constructors() -> dict[str, list[str]]:
    """Return the constructor parameters of each compiled class that has any, from the Cython source."""
    found = {}
    for body in re.split(r"^cdef class ", core_text(), flags=re.MULTILINE)[1:]:
        if match := re.search(r"^    def __c?init__\(self, (.*?)\):$", body, re.MULTILINE | re.DOTALL):
            parameters = re.split(r",\s*(?![^()]*\))", match[1])
            declared = [re.split(r"\s*=| not None", parameter)[0] for parameter in parameters]
            found[re.split(r"\W", body)[0]] = [declaration.split()[-1] for declaration in declared]
    return found


def stub_constructors() -> dict[str, list[str]]:
    found = {}
    stubs = sorted((ROOT / "kstore").glob("_core*.pyi"))
    for node in [node for stub in stubs for node in ast.parse(stub.read_text()).body]:
        for item in getattr(node, "body", []):
            is_constructor = isinstance(item, ast.FunctionDef) and item.name in ("__init__", "__new__")
            if isinstance(node, ast.ClassDef) and is_constructor:
                keywords = [argument.arg for argument in item.args.kwonlyargs]
                positional = [argument.arg for argument in item.args.args[1:]]
                found[node.name] = [*positional, *(["*"] if keywords else []), *keywords]
    return found


def test_stub_has_the_constructors_of_the_source() -> None:
    assert stub_constructors() == source_constructors()


@pytest.fixture(scope="module")
def c_bodies(translation: Translation) -> dict[str, str]:
    """What Cython made of each function of the core."""
    return bodies_in((translation.tree / "kstore" / "_core.c").read_text())


def bodies_in(text: str) -> dict[str, str]:
    """Return the bodies of functions of generated C, by their names in the core."""
    return {head[1]: text[head.end() : text.index("\n}\n", head.end())] for head in C_FUNCTION.finditer(text)}


def test_translation_prints_no_warning_or_hint(translation: Translation) -> None:
    said = [line for line in translation.log.splitlines() if line != "kstore" and not line.startswith(USUAL)]
    assert not said


def core_text() -> str:
    return "\n".join((ROOT / name).read_text() for name in CORE_SOURCES)


def leaf_names() -> list[str]:
    return sorted(set(LEAF.findall(core_text())))


def python_calls(body: str) -> set[str]:
    """Return the calls of a C body that reach the interpreter or Cython's own helpers."""
    code = re.sub(r"/\*.*?\*/", "", body, flags=re.DOTALL)
    return set(PYTHON_CALL.findall(code)) - PLAIN_C


def test_core_has_leaves() -> None:
    assert len(leaf_names()) > 20


@over("name", leaf_names(), by=lambda _: "core")
def test_leaf_calls_nothing_of_python(c_bodies: dict[str, str], name: str) -> None:
    assert not python_calls(c_bodies[name])


def test_every_c_function_states_its_exception_rule() -> None:
    text = core_text()
    stated = re.compile(r"\b(?:noexcept|except)\b")
    silent = []
    for match in FUNCTION.finditer(text):
        head = text[match.start() : text.index(":\n", match.start())]
        if not stated.search(head) and returns_c_value(head):
            silent.append(match[1])
    assert not silent


def returns_c_value(head: str) -> bool:
    """Say whether a `cdef` head returns something other than a Python object."""
    kinds = r"void|int|long|bint|char|double|float|Py_ssize_t|size_t|\w+_t"
    return bool(re.match(rf"cdef\s+(?:inline\s+)?(?:const\s+)?(?:(?:{kinds})\b|\w+\s*\*)", head))


def test_purity_check_sees_a_python_call() -> None:
    source = (
        "static int __pyx_f_6kstore_5_core_leaf(int n) {\n  /* Py_INCREF(x) */\n  return __Pyx_PyInt_From_int(n);\n}\n"
    )
    assert python_calls(bodies_in(source)["leaf"]) == {"__Pyx_PyInt_From_int"}
    assert python_calls("  if (unlikely(n < 0)) { return leaf(n); }") == set()
