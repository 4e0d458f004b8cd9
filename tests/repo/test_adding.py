"""Goal: docs/internals/adding.md names each place that a new codec, file kind, command or column concerns.
Method: the files and symbols of the page exist, and a search of the code finds no place that it does not name."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from functools import cache
from pathlib import Path
from typing import get_args

import pytest
import typer

from kstore import _core
from kstore.arrow.columns import TYPES
from kstore.cli import dump
from kstore.cli.commands import whole_app
from kstore.compression import CODECS_WITH_LEVELS, CompressionType
from kstore.config import CodecName
from kstore.log.files import names
from kstore.producer import ProducerConfig
from kstore.spark import schema
from tests.making.collecting import over

pytestmark = pytest.mark.build

ROOT = Path(__file__).parents[2]
SECTIONS = ("A codec", "A file kind", "A command", "A column")
CODECS = [codec.label for codec in CompressionType if codec is not CompressionType.NONE]


def rows_of(section: str) -> list[tuple[str, list[str]]]:
    """Return the files that a section names, each with the symbols in it."""
    text = (
        (ROOT / "docs" / "internals" / "adding.md").read_text().partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    )
    rows = re.findall(r"^\| `([\w./]+)`(?:: ((?:`[\w.]+`(?:, )?)+))? \|", text, re.MULTILINE)
    return [(file, re.findall(r"`([\w.]+)`", symbols)) for file, symbols in rows]


@cache
def code_words(path: Path) -> tuple[str, ...]:
    """Return the names and the texts in the code of a file, without comments and docstrings."""
    source = path.read_text()
    if path.suffix != ".py":
        return tuple(re.sub(r'"""[^"]*"""|#[^\n]*', "", source).splitlines())
    docstrings = {
        statement.value.lineno
        for statement in ast.walk(ast.parse(source))
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    }
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return tuple(
        {
            token.string
            for token in tokens
            if token.type in (tokenize.NAME, tokenize.STRING) and token.start[0] not in docstrings
        }
    )


def files_that_spell(words: str) -> set[str]:
    """Return the source files whose code has one of these words, alone or as a part of a name."""
    pattern = re.compile(words, re.IGNORECASE)
    sources = [path for path in (ROOT / "kstore").rglob("*") if path.suffix in (".py", ".pxi")]
    return {str(path.relative_to(ROOT)) for path in sources if any(map(pattern.search, code_words(path)))}


@over("section", SECTIONS)
def test_files_and_symbols_of_the_page_exist(section: str) -> None:
    rows = rows_of(section)
    assert len(rows) > 2
    for file, symbols in rows:
        text = (ROOT / file).read_text()
        missing = [symbol for symbol in symbols if not re.search(rf"\b{re.escape(symbol)}\b", text)]
        assert missing == [], file


def test_codecs_are_spelled_only_where_the_page_says() -> None:
    named = {file for file, _ in rows_of("A codec") if file.startswith("kstore/") and not file.endswith(".pyi")}
    assert files_that_spell("|".join(CODECS)) == named


def test_tables_of_codecs_agree() -> None:
    labels = [codec.label for codec in CompressionType]
    assert [*get_args(CodecName)] == labels
    assert dict(enumerate(labels)) == _core.CODEC_NAMES
    levels = {name for name in ProducerConfig.__dataclass_fields__ if re.fullmatch(r"compression_\w+_level", name)}
    assert levels == {f"compression_{codec.label}_level" for codec in CODECS_WITH_LEVELS}


FILE_KINDS = {name: value for name, value in vars(names).items() if name.endswith(("_SUFFIX", "_CHECKPOINT"))}


def test_file_kinds_are_spelled_in_one_module() -> None:
    texts = [value for value in FILE_KINDS.values() if value != names.LOG_SUFFIX]
    quoted = "|".join(rf"^[\"']{re.escape(text)}[\"']$" for text in texts)
    assert files_that_spell(quoted) == {"kstore/log/files/names.py"}


def test_each_file_kind_is_shown_by_dump_and_documented() -> None:
    format_page = (ROOT / "docs" / "format.md").read_text()
    shown = {*dump.SIDE_FILE_KINDS, *dump.ENTRY_SIZES, names.LOG_SUFFIX}
    kinds = {value for name, value in FILE_KINDS.items() if name != "BOOTSTRAP_CHECKPOINT"}
    assert {kind for kind in kinds if kind not in shown or kind not in format_page} == set()


def test_each_command_has_a_section_of_its_own() -> None:
    commands = set(typer.main.get_command(whole_app()).commands)  # type: ignore[attr-defined]
    page = (ROOT / "docs" / "cli.md").read_text()
    assert {command for command in commands if f"\n## {command}\n" not in page} == set()


def test_columns_of_batches_are_spelled_only_where_the_page_says() -> None:
    named = {file for file, _ in rows_of("A column") if file.startswith("kstore/") and file.endswith(".py")}
    assert files_that_spell(r"^[\"']isTransactional[\"']$") == named


def test_columns_of_arrow_and_spark_agree() -> None:
    assert [*schema.COLUMN_TYPES] == [*TYPES]
