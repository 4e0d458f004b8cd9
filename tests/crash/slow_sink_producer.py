"""A process that sends as fast as it can to a sink that is slower: how much memory it takes, how long send() blocks.

Run as `python -m tests.crash.slow_sink_producer SECONDS`; prints one JSON object.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from kstore.errors import BufferExhaustedError
from kstore.producer import Cluster, Node, PartitionInfo, Producer, ProduceResponse
from kstore.producer.batches.batch import ProducerBatch

BUFFER_MEMORY = 32 * 1024 * 1024
MAX_BLOCK_MS = 200
VALUE_BYTES = 1000
SINK_S = 0.5


class SlowSink:
    """Takes half a second for each request."""

    def cluster(self) -> Cluster:
        return Cluster([PartitionInfo("topic", number, Node(0)) for number in range(4)])

    def send(self, _: Node, batches: Sequence[ProducerBatch], *, ack: str) -> Sequence[ProduceResponse]:
        assert ack
        time.sleep(SINK_S)
        return [ProduceResponse(0)] * len(batches)


def resident_bytes(name: str) -> int:
    """VmRSS, or VmHWM for the most there ever was."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"no {name}")


def main() -> None:
    value = bytes(VALUE_BYTES)
    sent = refused = 0
    longest_s = 0.0
    before = resident_bytes("VmRSS")
    with Producer(SlowSink(), buffer_memory=BUFFER_MEMORY, max_block_ms=MAX_BLOCK_MS) as producer:
        end = time.monotonic() + float(sys.argv[1])
        while (now := time.monotonic()) < end:
            future = producer.send("topic", value, partition=sent % 4)
            longest_s = max(longest_s, time.monotonic() - now)
            if future.done() and isinstance(future.exception(), BufferExhaustedError):
                refused += 1
            sent += 1
        held = producer.metrics()["buffer-total-bytes"] - producer.metrics()["buffer-available-bytes"]
        producer.close(0)
    grown = resident_bytes("VmHWM") - before
    answer = {"grown": grown, "held": held, "sent": sent, "refused": refused, "longest_ms": longest_s * 1000}
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
