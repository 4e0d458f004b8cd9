"""Commands of an operator: metadata."""

from __future__ import annotations

from typing import Annotated

import typer

from kstore.cli.app import command
from kstore.cli.commands.options import Json
from kstore.cli.output import Output


@command("metadata")
def show_metadata(
    out: Output,
    directory: Annotated[
        str, typer.Argument(metavar="DIR", help="A root with __cluster_metadata-0, that directory, or a *.checkpoint.")
    ],
    path: Annotated[
        str | None, typer.Argument(metavar="PATH", help="What to show, such as topics/orders or configs.")
    ] = None,
    at: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="The state of the records below this offset; default: all.")
    ] = None,
    tree: Annotated[bool, typer.Option("--tree", help="Show all that is below it, indented.")] = False,
    json: Json = False,
) -> int:
    """Show the state of a KRaft cluster: topics, configs, brokers, ..."""
    from kstore.cli.operating import metadata

    return metadata.run(directory, path, out, at=at, is_tree=tree, is_json=json)
