"""`python -m kstore`: the same as the `kstore` command."""

import sys

from kstore.cli import main

sys.exit(main())
