"""The commands, in the order of the help: their options. What a command does is imported only when it runs."""

from kstore.cli.app import app
from kstore.cli.commands import reading  # noqa: F401

# isort: split
from kstore.cli.commands import describing  # noqa: F401

# isort: split
from kstore.cli.commands import coordinating  # noqa: F401

# isort: split
from kstore.cli.commands import checking  # noqa: F401

# isort: split
from kstore.cli.commands import cleaning  # noqa: F401

# isort: split
from kstore.cli.commands import moving  # noqa: F401

# isort: split
from kstore.cli.commands import operating  # noqa: F401

# isort: split
from kstore.cli.commands import shell  # noqa: F401

__all__ = ["app"]
