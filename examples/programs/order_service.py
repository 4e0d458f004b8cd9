"""Orders as events: a command is decided by the state that the events give, and appended if no other came in between.

    python examples/programs/order_service.py DIRECTORY

Any number of threads may have a service of their own on one store. Another process that would write the directory is
refused, or waits for it with `timeout=`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import kstore

TOPIC = "orders"
Status = Literal["placed", "paid", "shipped"]


@dataclass(frozen=True)
class Order:
    """The state of an order after its events."""

    amount: int
    status: Status


class RefusedCommandError(Exception):
    """An order does not allow a command."""


class OrderService:
    """Commands on orders, each durable when it returns.

    Threads: one at a time for a service; services of one store may run side by side.
    """

    def __init__(self, store: kstore.WritableStore) -> None:
        store.create_topic(TOPIC, exist_ok=True)
        self._log = store.log(TOPIC)
        self._next_offset = 0
        self.orders: dict[str, Order] = {}

    def catch_up(self) -> None:
        """Apply the events that were appended since the last call."""
        for record in self._log.read(self._next_offset):
            self._apply(record.key.decode(), json.loads(record.value))
            self._next_offset = record.offset + 1

    def place(self, order_id: str, amount: int) -> None:
        """Place a new order."""

        def decide(order: Order | None) -> dict[str, object]:
            if order is not None:
                raise RefusedCommandError(f"order {order_id} exists")
            return {"event": "placed", "amount": amount}

        self._decided(order_id, decide)

    def pay(self, order_id: str) -> None:
        """Pay an order that is placed."""
        self._decided(order_id, lambda order: _step(order_id, order, "placed", "paid"))

    def ship(self, order_id: str) -> None:
        """Ship an order that is paid."""
        self._decided(order_id, lambda order: _step(order_id, order, "paid", "shipped"))

    def _decided(self, order_id: str, decide: Callable[[Order | None], dict[str, object]]) -> None:
        while True:
            self.catch_up()
            event = json.dumps(decide(self.orders.get(order_id))).encode()
            record = kstore.Record(key=order_id.encode(), value=event)
            try:
                self._log.append(record, ack="flushed", expected_end_offset=self._next_offset)
            except kstore.UnexpectedAppendOffsetError:
                continue  # another service was faster: look at what it did, and decide again
            return self.catch_up()

    def _apply(self, order_id: str, event: dict[str, object]) -> None:
        kind = event["event"]
        if kind == "placed":
            self.orders[order_id] = Order(int(str(event["amount"])), "placed")
        elif kind == "paid" or kind == "shipped":
            self.orders[order_id] = replace(self.orders[order_id], status=kind)


def _step(order_id: str, order: Order | None, before: Status, after: Status) -> dict[str, object]:
    if order is None or order.status != before:
        raise RefusedCommandError(f"order {order_id} is {order.status if order else 'unknown'}, and not {before}")
    return {"event": after}


def main(directory: str) -> None:
    """Take commands from standard input, one a line: place ID AMOUNT, pay ID, ship ID; tell the outcome of each."""
    with kstore.open_store(directory, "a", timeout=5) as store:
        service = OrderService(store)
        print("ready", flush=True)
        for line in sys.stdin:
            command, order_id, *amount = line.split()
            try:
                if command == "place":
                    service.place(order_id, int(amount[0]))
                else:
                    {"pay": service.pay, "ship": service.ship}[command](order_id)
            except RefusedCommandError as error:
                print(error, flush=True)
            else:
                print(f"{order_id} {service.orders[order_id].status}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
