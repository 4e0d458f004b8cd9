"""kstore in an event loop of asyncio: Producer and Consumer, whose calls do not block the loop.

Stores, logs and followers are those of kstore: `async with` closes them, and `async for` iterates a follower.
"""

from kstore.aio.consumer import Consumer
from kstore.aio.producer import Producer

__all__ = ["Consumer", "Producer"]
