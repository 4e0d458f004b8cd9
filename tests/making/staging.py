"""Roots to write to, and batches staged and committed under them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from kstore.coordinator.transaction.log import TRANSACTION_STATE_CONFIG
from kstore.env import DEFAULT_ENV, LocalEnv
from kstore.producer.producer import Producer
from kstore.staging import (
    AppVersion,
    StagedFile,
    StagingArea,
    StagingSink,
    commit_staged,
    job_name,
    partitions_by_topic,
    prepare_root,
)
from kstore.store.store import open_store
from kstore.types import TRANSACTION_STATE_TOPIC

TOPIC, PARTITIONS = "t", 3


def make_root(root: Path) -> Path:
    """Create a root with a topic and a small `__transaction_state`, so that opening it after a crash is fast."""
    with open_store(root, "a") as store:
        store.create_topic(TOPIC, PARTITIONS)
        store.create_topic(TRANSACTION_STATE_TOPIC, 2, config=TRANSACTION_STATE_CONFIG)
    prepare_root(root)
    return root


def transactional_id(app_id: str) -> str:
    return f"kstore-spark-{app_id}"


def stage(
    root: Path,
    app: AppVersion,
    records: Iterable[tuple[int, bytes]],
    *,
    topic: str = TOPIC,
    new_topic_partitions: int | None = None,
    env: LocalEnv = DEFAULT_ENV,
    **settings: object,
) -> list[StagedFile]:
    """Stage values, each with its partition, as one task would."""
    sink = StagingSink(
        StagingArea(root, env),
        job_name(*app),
        partitions=partitions_by_topic(root),
        new_topic_partitions=new_topic_partitions,
        env=env,
    )
    sink.partition_count(topic)
    with Producer(sink, enable_idempotence=False, **settings) as producer:
        futures = [producer.send(topic, value, partition=partition) for partition, value in records]
    for future in futures:
        future.result()
    return list(sink.finish())


def commit(
    root: Path, app: AppVersion, staged: list[StagedFile], *, env: LocalEnv = DEFAULT_ENV, **options: int | None
) -> bool:
    return commit_staged(root, staged, transactional_id=transactional_id(app.app_id), app=app, env=env, **options)


def committed_values(root: Path, *, topic: str = TOPIC) -> list[list[bytes]]:
    """The values that readers of committed records find in each partition, without recovering the root."""
    with open_store(root) as store:
        return [
            [bytes(record.value or b"") for record in store.log(*one).read(isolation="read_committed")]
            for one in store.partitions
            if one.topic == topic
        ]
