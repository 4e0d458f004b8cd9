"""One Spark session for all Spark tests, and the directory that the connector's answers were observed on."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.making.extracting import extract

REPOSITORY = Path(__file__).resolve().parents[2]
PACKED = REPOSITORY / "tests" / "golden" / "spark-connector" / "trees.tar.xz"
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.log.level": "OFF",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session whose Python workers see the kstore under test, as an installed package would be seen."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")])))
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        builder = SparkSession.builder.master("local[2]").appName("kstore tests")
        builder.config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        for name, value in SETTINGS.items():
            builder.config(name, value)
        session = builder.getOrCreate()
        yield session
        session.stop()


@pytest.fixture(scope="session")
def connector_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log.dirs root of a Kafka 4.1.0 broker with the topics f.*; tests don't write there."""
    target = tmp_path_factory.mktemp("spark-connector")
    extract(PACKED, target)
    return target / "data"


@pytest.fixture
def nothing_frozen() -> Iterator[None]:
    """Objects of the test's process are collected, before the test and after it."""
    gc.unfreeze()
    yield
    gc.unfreeze()
