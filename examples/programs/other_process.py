"""A consumer in a process of its own, beside the one that writes: it commits to a root of its own.

    python examples/programs/other_process.py DIRECTORY OFFSETS

It prints each value, which stands for the work, and then commits. After a kill the next one begins at the last commit:
no record is left out, and those of one poll may come again, which the work must bear.
"""

from __future__ import annotations

import sys

import kstore

TOPIC = "readings"
GROUP = "printing"
BETWEEN_COMMITS = 10


def consume(directory: str, offsets: str) -> None:
    """Print each value, and commit after every BETWEEN_COMMITS of them; return after a record b"end"."""
    # Opened for reading: it takes no lock, and sees topics and partitions that come later.
    with (
        kstore.open_store(directory) as store,
        kstore.Consumer(
            store,
            group=GROUP,
            topics=[TOPIC],
            offsets=offsets,
            auto_offset_reset="earliest",
            max_poll_records=BETWEEN_COMMITS,
        ) as consumer,
    ):
        print("ready", flush=True)
        is_ended = False
        while not is_ended:
            records = consumer.poll(timeout=None)
            for record in records:
                print(record.value.decode(), flush=True)  # the work
            consumer.commit()
            is_ended = any(record.value == b"end" for record in records)


if __name__ == "__main__":
    consume(*sys.argv[1:])
