"""StoreTopics: the topics of a store as groups of KIP-848 see them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from uuid import UUID

from kstore.coordinator.group.consumer.topics import Topic, TopicsImage
from kstore.errors import LogNotFoundError
from kstore.store.store import Store, WritableStore
from kstore.types import TopicPartition


class StoreTopics:
    """The topics of a store when it was last looked at.

    Args: topic_id: returns the id of a topic, and raises LogNotFoundError if it is not there.
    Attributes: image.
    Threads: the loop's.
    """

    def __init__(self, store: Store | WritableStore, topic_id: Callable[[str], UUID]) -> None:
        self._store = store
        self._topic_id = topic_id
        self.image = TopicsImage({})
        self._partitions: tuple[TopicPartition, ...] = ()

    async def look(self) -> None:
        """Make another image, in a thread, if partitions came or went.  Raises: as topic_id.

        Cost: one comparison if there is nothing new.
        """
        partitions = self._store.partitions
        if partitions is not self._partitions:
            self.image = await asyncio.to_thread(self._made, partitions)
            self._partitions = partitions

    def _made(self, partitions: tuple[TopicPartition, ...]) -> TopicsImage:
        topics = {}
        for topic, count in {topic: number + 1 for topic, number in partitions}.items():
            # One that was deleted meanwhile is not there in the next image.
            with suppress(LogNotFoundError):
                topics[topic] = Topic(self._topic_id(topic), count)
        return TopicsImage(topics)
