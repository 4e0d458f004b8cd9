"""Consume, transform, produce, exactly once: each input record counts in one committed output, whatever is killed when.

    python examples/programs/transform.py DIRECTORY

The offsets of the input are committed in the transaction of the output. A second instance with the same transactional
id fences the first one, whose next call raises ProducerFencedError. Both are threads of one process here: one process
writes a directory.
"""

from __future__ import annotations

import sys

import kstore

WORDS, COUNTS = "words", "lengths"
GROUP = "lengths"


class Transform:
    """Writes the length of each word of one topic to another.

    Threads: one at a time.
    """

    def __init__(self, store: kstore.WritableStore) -> None:
        store.create_topic(WORDS, exist_ok=True)
        store.create_topic(COUNTS, exist_ok=True)
        self._producer = kstore.Producer(store, transactional_id=GROUP)
        # Ends what an instance that was killed has left, and fences one that is still there.
        self._producer.init_transactions()
        self._consumer = kstore.Consumer(
            store, group=GROUP, topics=[WORDS], auto_offset_reset="earliest", isolation="read_committed"
        )

    def step(self, timeout: float = 0.0) -> int:
        """Transform the next records, all or none of them; return how many.

        Raises: ProducerFencedError once there is a newer instance: close this one.
        """
        words = self._consumer.poll(timeout)
        if words:
            try:
                with self._producer.begin_transaction():
                    for word in words:
                        self._producer.send(COUNTS, b"%d" % len(word.value), key=word.value)
                    self._producer.send_offsets_to_transaction(self._consumer.positions(), GROUP)
            except kstore.KStoreError:
                self._rewind()
                raise
        return len(words)

    def _rewind(self) -> None:
        """Read again what the aborted transaction had read."""
        for partition, committed in self._consumer.committed().items():
            self._consumer.seek(partition, kstore.EARLIEST if committed is None else committed.offset)

    def close(self) -> None:
        """Close the consumer and the producer, which aborts an open transaction."""
        self._consumer.close()
        self._producer.close()


def main(directory: str) -> None:
    """Append the lines of standard input, and transform after each of them."""
    with kstore.open_store(directory, "a", timeout=10) as store:
        transform = Transform(store)
        print("ready", flush=True)
        with kstore.Producer(store, value_serializer="string") as producer:
            for line in sys.stdin:
                producer.send(WORDS, line.strip()).result()
                print(line.strip(), flush=True)
                transform.step()
        while transform.step():
            pass
        transform.close()


if __name__ == "__main__":
    main(sys.argv[1])
