"""A queue of tasks that survives kill -9 of whoever puts tasks in, and of the worker.

    python examples/programs/work_queue.py put DIRECTORY         tasks from standard input, one a line
    python examples/programs/work_queue.py work DIRECTORY OWN    does them, in any number of lives

The process that puts tasks in is the only writer of DIRECTORY; a worker reads it, and keeps in a root of its own, OWN,
how far it is, and the tasks that failed. A task may be done twice if its worker is killed between the work and the
commit, so its result has the task's offset as its name: the second one replaces the first.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import kstore

TASKS, FAILED = "tasks", "failed"
GROUP = "workers"
MOST_ATTEMPTS = 3


def put(directory: str) -> None:
    """Put tasks in; a task is acknowledged, by a line with its offset, once no power cut can take it away."""
    with kstore.open_store(directory, "a", timeout=10) as store:
        store.create_topic(TASKS, exist_ok=True)
        with kstore.Producer(store, acks="flushed", value_serializer="string") as producer:
            print("ready", flush=True)
            for line in sys.stdin:
                print(producer.send(TASKS, line.strip()).result().offset, flush=True)


def work(directory: str, own: str) -> None:
    """Do tasks until there is one that says "stop"."""
    with kstore.open_store(directory) as queue, kstore.open_store(own, "a", timeout=10) as progress:
        progress.create_topic(FAILED, exist_ok=True)
        with kstore.Consumer(
            queue, group=GROUP, topics=[TASKS], offsets=progress, auto_offset_reset="earliest", max_poll_records=1
        ) as consumer:
            print("ready", flush=True)
            while True:
                for task in consumer.poll(timeout=None):
                    if task.value != b"stop" and not any(attempt(task, Path(own)) for _ in range(MOST_ATTEMPTS)):
                        # Before the commit: a task is in one of the two places, whenever the worker dies.
                        progress.log(FAILED).append(kstore.Record(key=b"%d" % task.offset, value=task.value))
                    consumer.commit()
                    print(task.offset, flush=True)
                    if task.value == b"stop":
                        return


def attempt(task: kstore.Record, own: Path) -> bool:
    """Do a task, which is a number to be squared; return False if that fails."""
    try:
        result = str(int(task.value) ** 2)
    except ValueError:
        return False
    name = own / "results" / str(task.offset)
    name.parent.mkdir(exist_ok=True)
    # The whole file or none.
    draft = name.with_suffix(".draft")
    draft.write_text(result)
    os.replace(draft, name)
    return True


if __name__ == "__main__":
    if sys.argv[1] == "put":
        put(sys.argv[2])
    else:
        work(sys.argv[2], sys.argv[3])
