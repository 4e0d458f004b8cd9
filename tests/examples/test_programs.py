"""Goal: the programs of examples/programs do what they say, also where something fails.
Method: each with its failure: killed processes, a second writer, a full buffer, a second instance, a slow disk."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest

import kstore
from examples.programs import in_asyncio, other_process, threaded_producer
from examples.programs.order_service import OrderService, RefusedCommandError
from examples.programs.transform import COUNTS, WORDS, Transform
from tests.examples.gate import PATIENCE_S


def values(root, topic, **options):
    with kstore.open_store(root) as store:
        return [record.value for partition in store.partitions if partition.topic == topic
                for record in store.log(*partition).read(**options)]  # fmt: skip


# An event-sourced order service


def test_orders_survive_a_kill_and_a_second_writer_is_refused_by_name(start, tmp_path):
    first = start("order_service", tmp_path)
    first.say("place a 5")
    assert first.hear() == "a placed"
    with pytest.raises(kstore.LogLockedError) as refused:
        kstore.open_store(tmp_path, "a")
    assert refused.value.holder_pid == first.process.pid
    first.say("pay a")
    assert first.hear() == "a paid"
    first.kill()
    second = start("order_service", tmp_path)
    second.say("pay a")
    assert second.hear() == "order a is paid, and not placed"
    second.say("ship a")
    assert second.hear() == "a shipped"
    assert second.end() == []


def test_of_services_that_decide_at_once_one_wins_and_the_others_decide_again(tmp_path):
    with kstore.open_store(tmp_path, "a") as store:
        services = [OrderService(store) for _ in range(4)]
        for number in range(20):
            services[0].place(str(number), number)
        start = threading.Barrier(4)

        def pay_all(service):
            paid = 0
            start.wait()
            for number in range(20):
                try:
                    service.pay(str(number))
                    paid += 1
                except RefusedCommandError:
                    pass
            return paid

        with ThreadPoolExecutor(4) as threads:
            assert sum(threads.map(pay_all, services)) == 20
        for service in services:
            service.catch_up()
            assert {order.status for order in service.orders.values()} == {"paid"}
        assert len(store.log("orders")) == 40


def test_a_command_is_decided_again_after_another_service_was_faster(tmp_path):
    with kstore.open_store(tmp_path, "a") as store:
        slow, fast = OrderService(store), OrderService(store)
        slow.place("a", 5)
        catch_up = slow.catch_up

        def overtaken():
            catch_up()
            slow.catch_up = catch_up
            fast.pay("a")

        slow.catch_up = overtaken
        with pytest.raises(RefusedCommandError, match="order a is paid"):
            slow.pay("a")


# A producer of many threads


def test_a_full_buffer_refuses_readings_and_each_is_counted(tmp_path, gate):
    with kstore.open_store(tmp_path, "a") as store:
        readings = threaded_producer.Readings(store, buffer_memory=64 * 1024)
        with ThreadPoolExecutor(4) as threads:
            for number in range(4):
                threads.submit(readings.take, f"sensor-{number}", range(3000))
        refused = readings.totals.refused
        gate.open()
        totals = readings.close()
    assert refused > 0
    assert totals.offered == 12_000 == totals.written + totals.refused
    assert len(values(tmp_path, "readings")) == totals.written


def test_readings_of_a_sensor_are_in_their_order(tmp_path):
    with kstore.open_store(tmp_path, "a") as store:
        readings = threaded_producer.Readings(store)
        with ThreadPoolExecutor(4) as threads:
            for number in range(4):
                threads.submit(readings.take, f"sensor-{number}", range(500))
        assert readings.close() == threaded_producer.Totals(2000, 2000, 0)
        for partition in store.partitions:
            found = {}
            for record in store.log(*partition).read():
                found.setdefault(record.key, []).append(float(record.value))
            assert all(numbers == list(range(500)) for numbers in found.values())


# A consumer in another process


def test_a_consumer_that_is_killed_goes_on_at_its_last_commit(start, tmp_path):
    heard = []
    with kstore.open_store(tmp_path / "root", "a") as store:
        store.create_topic("readings")
        log = store.log("readings")
        for life in range(3):
            consumer = start("other_process", tmp_path / "root", tmp_path / "offsets")
            for number in range(40):
                log.append(kstore.Record(value=b"%d" % (40 * life + number)))
            heard.append([consumer.hear() for _ in range(25)] + consumer.kill())
        last = start("other_process", tmp_path / "root", tmp_path / "offsets")
        log.append(kstore.Record(value=b"end"))
        heard.append(last.end())
    seen = [int(value) for life in heard for value in life if value != "end"]
    assert set(seen) == set(range(120))
    repeated = [len(set(life) & set(following)) for life, following in pairwise(heard)]
    assert max(repeated) <= other_process.BETWEEN_COMMITS


# A queue under kill -9


def test_each_task_that_was_acknowledged_is_done_whoever_is_killed(start, tmp_path):
    queue, own = tmp_path / "queue", tmp_path / "own"
    tasks = {}
    for life in range(3):
        putting = start("work_queue", "put", queue)
        worker = start("work_queue", "work", queue, own)
        for number in range(5):
            task = "no number" if number == 2 else str(10 * life + number)
            putting.say(task)
            tasks[int(putting.hear())] = task
        worker.hear()
        putting.say("777")  # that of the kill: it may be there or not
        putting.kill()
        worker.kill()
    putting = start("work_queue", "put", queue)
    putting.say("stop")
    putting.end()
    start("work_queue", "work", queue, own).end()
    done = {int(path.name): int(path.read_text()) for path in (own / "results").iterdir() if not path.suffix}
    with kstore.open_store(own) as store:
        failed = {int(record.key) for record in store["failed"]}
    for offset, task in tasks.items():
        if task == "no number":
            assert offset in failed
        else:
            assert done[offset] == int(task) ** 2


# asyncio


def test_tasks_wait_for_a_full_buffer_and_a_disk_that_does_not_answer_and_the_loop_goes_on(tmp_path, gate):
    async def main():
        async with kstore.open_store(tmp_path, "a") as store:
            store.create_topic(in_asyncio.TOPIC)
            running = asyncio.create_task(in_asyncio.run(store, tasks=300, each=3, buffer_memory=8 * 1024))
            await asyncio.to_thread(gate.is_reached.wait, PATIENCE_S)
            for _ in range(1000):
                await asyncio.sleep(0)
            assert not running.done()
            gate.open()
            return await asyncio.wait_for(running, PATIENCE_S)

    assert asyncio.run(main()) == {f"task-{number}": 3 for number in range(300)}


# Consume, transform, produce


def test_each_word_counts_once_however_often_the_program_is_killed(start, tmp_path):
    said = []
    for life in range(4):
        program = start("transform", tmp_path)
        for number in range(10):
            word = "x" * (10 * life + number + 1)
            program.say(word)
            said.append(word)
            assert program.hear() == word
        program.kill()
    start("transform", tmp_path).end()
    assert values(tmp_path, COUNTS, isolation="read_committed") == [b"%d" % len(word) for word in said]


def test_a_second_instance_fences_the_first_which_has_changed_nothing(tmp_path):
    with kstore.open_store(tmp_path, "a") as store:
        first = Transform(store)
        log = store.log(WORDS)
        log.append(kstore.Record(value=b"one"))
        assert first.step() == 1
        second = Transform(store)
        log.append(kstore.Record(value=b"three"))
        with pytest.raises(kstore.ProducerFencedError):
            first.step()
        assert second.step() == 1
        first.close()
        second.close()
    assert values(tmp_path, COUNTS, isolation="read_committed") == [b"3", b"5"]
