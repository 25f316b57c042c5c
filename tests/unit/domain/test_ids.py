"""Identifiers."""

from __future__ import annotations

import os
import threading
import time
import uuid

from django_jobs.domain import ids


def test_uuid7_has_the_version_variant_and_time_of_rfc_9562() -> None:
    """An id carries version 7, the RFC variant and the current millisecond in its first 48 bits."""
    ids._generator.restart()  # a test that travelled into the future left its time here
    before = time.time_ns() // 1_000_000
    value = ids.uuid7()
    after = time.time_ns() // 1_000_000
    assert (value.version, value.variant) == (7, uuid.RFC_4122)
    assert before <= value.int >> 80 <= after + 1


def test_uuid7_is_strictly_increasing_within_a_burst() -> None:
    """Many ids made in the same millisecond still sort in the order in which they were made."""
    made = [ids.uuid7() for _ in range(5000)]
    assert made == sorted(set(made))


def test_uuid7_goes_on_increasing_when_the_clock_goes_back() -> None:
    """A clock that jumps back never makes an id smaller than an earlier one."""
    generator = ids._Generator()
    made = [generator.next(now) for now in (1000, 1001, 400, 400, 1001, 1002)]
    assert made == sorted(set(made))
    assert made[2].int >> 80 == 1001


def test_uuid7_borrows_the_next_millisecond_when_the_counter_is_full() -> None:
    """A full counter moves on to the next millisecond instead of starting again."""
    generator = ids._Generator()
    first = generator.next(1000)
    generator._counter = ids._COUNTER_LIMIT - 1
    second = generator.next(1000)
    assert second > first
    assert second.int >> 80 == 1001


def test_uuid7_is_unique_across_threads() -> None:
    """Threads that make ids at the same time never get the same one, and each sees its own increase."""
    made: list[list[uuid.UUID]] = []
    threads = [threading.Thread(target=lambda: made.append([ids.uuid7() for _ in range(1000)])) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=20)
    everything = [value for values in made for value in values]
    assert len(set(everything)) == 4000
    assert all(values == sorted(values) for values in made)


def test_uuid7_works_in_a_child_forked_while_the_lock_is_held() -> None:
    """A child forked while another thread makes an id neither hangs nor repeats the parent's ids."""
    read_end, write_end = os.pipe()
    with ids._generator._lock:
        child = os.fork()
        if child == 0:
            os.write(write_end, ids.uuid7().bytes)
            os._exit(0)
    os.close(write_end)
    _, status = os.waitpid(child, 0)
    from_child = uuid.UUID(bytes=os.read(read_end, 16))
    os.close(read_end)
    assert status == 0
    assert from_child.version == 7
    assert from_child != ids.uuid7()
