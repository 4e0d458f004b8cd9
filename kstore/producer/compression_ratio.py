"""What the records of a topic compressed to lately, by which a batch judges how many more it can take. Layer 5."""

from __future__ import annotations

import threading

from kstore.compression import CompressionType

_FIRST_RATIO = 1.0
_WORSE_STEP = 0.05
_BETTER_STEP = 0.005


class CompressionRatioEstimator:
    """Size behind by size before compression, for each topic and codec; 1.0 until a batch was seen.

    It rises fast and falls slowly: too low an estimate makes batches that the broker refuses. Unlike Kafka's it is no
    global, so that producers do not mix what they know.

    Threads: safe.  Source: Kafka CompressionRatioEstimator.
    """

    def __init__(self) -> None:
        self._ratios: dict[tuple[str, CompressionType], float] = {}
        self._lock = threading.Lock()

    def estimation(self, topic: str, compression: CompressionType) -> float:
        """Return the ratio to expect."""
        return self._ratios.get((topic, compression), _FIRST_RATIO)

    def update_estimation(self, topic: str, compression: CompressionType, observed: float) -> float:
        """Take the ratio of a batch into account and return the new estimate."""
        with self._lock:
            estimate = self.estimation(topic, compression)
            if observed > estimate:
                estimate = max(estimate + _WORSE_STEP, observed)
            elif observed < estimate:
                estimate = max(estimate - _BETTER_STEP, observed)
            self._ratios[topic, compression] = estimate
        return estimate

    def set_estimation(self, topic: str, compression: CompressionType, ratio: float) -> None:
        """Replace the estimate, for a batch that proved too large."""
        with self._lock:
            self._ratios[topic, compression] = ratio
