"""Power cuts of real file systems, under the histories of crash_states.py.

A case is one image: the history goes on from what each cut left, after it was held to everything that was flushed.
What uses the file system runs in a child, which dies with the power.
"""

from __future__ import annotations

import os
import pickle
import random
import tempfile
import traceback
from collections.abc import Callable
from typing import TypeVar

from tests.crash.crash_history import CrashHistory, abandon, check_files
from tests.crash.crash_states import live
from tests.fakes.power import FILE_SYSTEMS, CuttingEnv, LoopImage

CUTS = 10
LONGEST_LIFE = 1500
STEPS = 200
T = TypeVar("T")


def cut_again_and_again(seed: str, file_system: str, *, cuts: int = CUTS) -> int:
    """Cut the power of a file system several times during one history; return how often.

    Raises: MissingMeansError.
    """
    rng = random.Random(seed)
    with LoopImage(FILE_SYSTEMS[file_system]) as image:
        root = image.path / "root"
        root.mkdir()
        history = CrashHistory(rng, path=str(root / "t-0"))
        for _ in range(cuts):
            history = in_child(live_until_cut, history, image)
            image.unmount()
            image.mount()
            history = in_child(settled, history, image)
    return cuts


def live_until_cut(history: CrashHistory, image: LoopImage) -> CrashHistory:
    env = CuttingEnv(image, history.rng, cut_at=history.rng.randint(1, LONGEST_LIFE))
    live(history, env, steps=STEPS)
    return history


def settled(history: CrashHistory, image: LoopImage) -> CrashHistory:
    """Open what the cut left, hold it to the history, and check every file."""
    env = CuttingEnv(image, history.rng)
    log = history.opened_by(env)
    history.settle(log)
    check_files(history, env)
    abandon(log)
    return history


def in_child(do: Callable[[CrashHistory, LoopImage], T], history: CrashHistory, image: LoopImage) -> T:
    """Return what a function returns in a process that ends with it; an error there is an AssertionError here."""
    with tempfile.TemporaryFile() as answer:
        child = os.fork()
        if child == 0:
            try:
                pickle.dump((do(history, image), None), answer)
            except BaseException:  # noqa: BLE001 - the parent raises it
                pickle.dump((None, traceback.format_exc()), answer)
            finally:
                answer.flush()
                os._exit(0)
        os.waitpid(child, 0)
        answer.seek(0)
        found, problem = pickle.load(answer)
    assert problem is None, problem
    return found  # type: ignore[no-any-return]
