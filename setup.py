"""Build of the one extension module; everything else is in pyproject.toml."""

import os

from Cython.Build import cythonize
from setuptools import Extension, setup

DEBUG = os.environ.get("KSTORE_DEBUG") == "1"
FAST = os.environ.get("KSTORE_FAST") == "1"  # a quicker build for developers, of a slower library
SYMBOLS = os.environ.get("KSTORE_SYMBOLS") == "1"  # for perf and gdb, which then name lines of the .pxi files
# Here and not in the umbrella's head comment, which would win over what the debug build asks for.
DIRECTIVES = {"boundscheck": DEBUG, "initializedcheck": DEBUG, "cdivision": not DEBUG, "linetrace": DEBUG}
OPTIMIZE = ["-O1" if FAST else "-O3", "-g" if SYMBOLS else "-g0", "-D_FORTIFY_SOURCE=2", "-fstack-protector-strong"]
OPTIMIZE += ["-Wno-maybe-uninitialized"] if FAST else []  # which -O1 finds where there is nothing
# Python builds extensions with -fwrapv, under which an overflow of signed numbers would be no finding.
SANITIZE = ["-fsanitize=address,undefined", "-fno-wrapv", "-fno-omit-frame-pointer", "-fno-var-tracking-assignments"]

core = Extension(
    "kstore._core",
    ["kstore/_core.pyx"],
    depends=["kstore/_core_cpu.h"],
    define_macros=[("CYTHON_TRACE", "1"), ("CYTHON_TRACE_NOGIL", "1")] if DEBUG else [("NDEBUG", "1")],
    extra_compile_args=["-O1", "-g", *SANITIZE] if DEBUG else OPTIMIZE,
    extra_link_args=SANITIZE if DEBUG else [],
)

setup(ext_modules=cythonize([core], compiler_directives=DIRECTIVES, annotate=DEBUG, emit_linenums=SYMBOLS))
