"""What every test shares: Hypothesis profiles, and how tests are spread over workers."""

from __future__ import annotations

import pytest
from hypothesis import settings

settings.register_profile("default", deadline=None, derandomize=True, database=None, print_blob=True)
settings.register_profile("long", deadline=None, max_examples=1000, print_blob=True)
settings.load_profile("default")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep each file on one worker, and all of Spark on one, so that a session fixture is made once."""
    for item in items:
        if " at 0x" in item.nodeid:
            raise pytest.UsageError(f"{item.nodeid}: an address in a test's name differs from worker to worker")
        group = "spark" if item.get_closest_marker("spark") else item.nodeid.partition("::")[0]
        item.add_marker(pytest.mark.xdist_group(group))
