"""What every test shares: Hypothesis profiles, and how tests are spread over workers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

# a busy machine is no defect
UNTIMED = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("default", derandomize=True, database=None, print_blob=True, **UNTIMED)
settings.register_profile("long", max_examples=1000, print_blob=True, **UNTIMED)
settings.load_profile("default")

# What shares a fixture of the whole run: a Spark session, the core translated and built.
GROUPS = {
    "tests/spark/": "spark",
    "tests/unit/test_packaging.py": "build",
    "tests/unit/test_sourcecode.py": "build",
}


def group_of(nodeid: str) -> str:
    """Return the group of a test: that of what it shares, else its file."""
    return next((group for place, group in GROUPS.items() if nodeid.startswith(place)), nodeid.partition("::")[0])


class GroupScheduling(LoadScopeScheduling):
    """Keeps each group on one worker, so that what its tests share is made once; the groups go out in their order."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Callable[..., Any]) -> GroupScheduling:
    return GroupScheduling(config, log)


@pytest.fixture
def quiet_producer(caplog: pytest.LogCaptureFixture) -> None:
    """Leaves out what the producer logs of failures that are made."""
    caplog.set_level(logging.CRITICAL, logger="kstore.producer")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put first what takes longest, so that no worker is left with it at the end."""
    for item in items:
        if " at 0x" in item.nodeid:
            raise pytest.UsageError(f"{item.nodeid}: an address in a test's name differs from worker to worker")
    items.sort(key=lambda item: group_of(item.nodeid) not in GROUPS.values())
