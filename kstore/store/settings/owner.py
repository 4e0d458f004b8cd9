"""owning_cluster: whether a cluster has its own account of the topics in a root."""

from __future__ import annotations

from kstore.env import Env, join_path
from kstore.log.files.names import BOOTSTRAP_CHECKPOINT, CLUSTER_METADATA_TOPIC
from kstore.log.files.root_files import read_meta_properties
from kstore.store.settings.file import read_settings
from kstore.types import TopicPartition


def owning_cluster(root: str, env: Env) -> str | None:
    """Return why a cluster has its own account of the topics in a root, None if kstore alone knows them."""
    for name in (str(TopicPartition(CLUSTER_METADATA_TOPIC, 0)), BOOTSTRAP_CHECKPOINT):
        if env.stat(join_path(root, name)) is not None:
            return f"it has {name}"
    meta = read_meta_properties(root, env)
    if meta is None or read_settings(root, env).defaults is not None:
        return None
    return "its meta.properties is of a broker: kstore did not make it"
