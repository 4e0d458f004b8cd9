"""Build of the extension module kstore._core, and the long description. All other settings are in pyproject.toml."""

import os
import re
import sys
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

if sys.platform == "win32":
    sys.exit("kstore runs on Linux and macOS, not on Windows (docs/platforms.md): its core does not compile there")

DEBUG = os.environ.get("KSTORE_DEBUG") == "1"
FAST = os.environ.get("KSTORE_FAST") == "1"  # for developers: a faster build of a slower library
SYMBOLS = os.environ.get("KSTORE_SYMBOLS") == "1"  # for perf and gdb, which then show lines of the .pxi files
# Set here because directives in the head comment of _core.pyx would override those of the debug build.
DIRECTIVES = {"boundscheck": DEBUG, "initializedcheck": DEBUG, "cdivision": not DEBUG, "linetrace": DEBUG}
OPTIMIZE = ["-O1" if FAST else "-O3", "-g" if SYMBOLS else "-g0", "-D_FORTIFY_SOURCE=2", "-fstack-protector-strong"]
OPTIMIZE += ["-Wno-maybe-uninitialized"] if FAST else []  # -O1 reports false positives
# Python builds extensions with -fwrapv, with which the sanitizer does not report signed overflow.
SANITIZE = ["-fsanitize=address,undefined", "-fno-wrapv", "-fno-omit-frame-pointer", "-fno-var-tracking-assignments"]

PROJECT = "https://github.com/kstore-project/kstore"
RELATIVE_LINK = re.compile(r"(!?\[[^\]]*\]\()(?!https?://|#)([^)]+)\)")


def long_description() -> str:
    """Return README.md with absolute links, since a package index shows it without the tree."""

    def absolute(link: re.Match) -> str:
        pages = f"{PROJECT}/raw/main" if link[1].startswith("!") else f"{PROJECT}/blob/main"
        return f"{link[1]}{pages}/{link[2]})"

    return RELATIVE_LINK.sub(absolute, Path(__file__).with_name("README.md").read_text(encoding="utf-8"))


BUILD = "debug" if DEBUG else "fast" if FAST else "release"
MACROS = [("KS_BUILD", f'"{BUILD}"')]
MACROS += [("CYTHON_TRACE", "1"), ("CYTHON_TRACE_NOGIL", "1")] if DEBUG else [("NDEBUG", "1")]

core = Extension(
    "kstore._core",
    ["kstore/_core.pyx"],
    depends=["kstore/_core_cpu.h"],
    define_macros=MACROS,
    extra_compile_args=["-O1", "-g", *SANITIZE] if DEBUG else OPTIMIZE,
    extra_link_args=SANITIZE if DEBUG else [],
)

setup(
    ext_modules=cythonize([core], compiler_directives=DIRECTIVES, annotate=DEBUG, emit_linenums=SYMBOLS),
    long_description=long_description(),
    long_description_content_type="text/markdown",
)
