"""Burns CPU in functions called in different ways, each in one known chain, and accounts for its time."""

import asyncio
import functools
import hashlib
import os
import sys
import threading
import time

SLICE_NS = 20_000_000
# In innermost functions.
burned_ns = 0


def burn():  # burns
    global burned_ns  # burns
    start = time.thread_time_ns()  # burns
    while (now := time.thread_time_ns()) < start + SLICE_NS:  # burns
        for number in range(200):  # burns
            number * number  # burns
    burned_ns += now - start  # burns


def by_call():
    middle()  # calls


def middle():
    inner()  # calls


def inner():
    burn()  # calls


class Key:
    def __init__(self, key):
        self.key = key

    def __lt__(self, other):
        burn()  # calls
        return self.key < other.key


def by_callback():
    sorted([Key(2), Key(1)])  # calls


def generate():
    inside = delegate()
    yield from inside  # calls


def delegate():
    burn()  # calls
    yield 1


def by_generator():
    for _ in generate():  # calls
        pass


def by_generator_from_c():
    list(generate())  # calls


def recurse(depth):
    if depth == 0:
        burn()  # calls
    else:
        recurse(depth - 1)  # calls


def by_recursion():
    recurse(30)  # calls


def by_lambda():
    list(map(lambda _: burn(), [1]))  # calls


def by_partial():
    functools.partial(middle)()  # calls


def handle():
    try:
        raise ValueError
    except ValueError:
        burn()  # calls


def by_exception():
    handle()  # calls


class Base:
    def method(self):
        burn()  # calls


class Derived(Base):
    def method(self):
        super().method()  # calls

    @property
    def attribute(self):
        self.method()  # calls


def by_method():
    Derived().attribute  # calls


EXECUTED = compile("burn()", "<made up>", "exec")


def by_execution():
    exec(EXECUTED, {"burn": burn})  # calls


async def wait_for():
    burn()  # calls


async def gather():
    await wait_for()  # calls


def by_coroutine():
    coroutine = gather()
    try:
        coroutine.send(None)  # calls
    except StopIteration:
        pass


async def in_task(seconds):
    await asyncio.sleep(seconds)
    await wait_for()  # calls


async def gather_tasks():
    # They burn one after the other, each resumed by the loop.
    await asyncio.gather(in_task(0), in_task(0.001))


def by_tasks():
    LOOP.run_until_complete(gather_tasks())  # calls


LOOP = asyncio.new_event_loop()


def by_hash():  # burns
    global burned_ns  # burns
    start = time.thread_time_ns()  # burns
    while (now := time.thread_time_ns()) < start + SLICE_NS:  # burns
        hashlib.sha256(DATA)  # burns
    burned_ns += now - start  # burns


def by_größe():
    burn()  # calls


DATA = bytes(4 << 20)

WAYS = [way for name, way in list(globals().items()) if name.startswith("by_")]


CLOCK = open(os.environ["PROFCOL_TEST_CLOCK"], "w", buffering=1) if "PROFCOL_TEST_CLOCK" in os.environ else None


def main(ways):
    end = time.monotonic() + float(sys.argv[1])
    while time.monotonic() < end:
        for way in ways:
            burned, start, cpu = burned_ns, time.time_ns(), time.thread_time_ns()
            way()  # calls
            cpu, stop = time.thread_time_ns() - cpu, time.time_ns()
            if CLOCK:
                CLOCK.write(f"{way.__name__} {start} {stop} {cpu} {burned_ns - burned}\n")


def in_thread():
    # The loop runs in one thread only.
    main([way for way in WAYS if way is not by_tasks])  # calls


if len(sys.argv) > 2:
    threads = [threading.Thread(target=in_thread) for _ in range(int(sys.argv[2]))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
else:
    main(WAYS)  # calls
