"""worker.py - the part that all Python peers share: workers that acquire and release and record
when, or single requests that `run` sends. Arguments are name=value; worker.mjs is the same in Node.

`run` sends lines: `cycle END` runs the workers until END and ends; `ask KEY` acquires and `free
KEY` releases, and both answer with the times of the call and of its return; `end` ends.

A peer is an object with acquire(key), which returns the argument of release(lock). Both are called
from many threads."""
import array
import os
import sys
import threading
import time

words = dict(word.split("=", 1) for word in sys.argv[1:])


def number(name):
    return float(words[name])


def say(*parts):
    os.write(1, (" ".join(str(part) for part in parts) + "\n").encode())


# The turns of all workers of this process (see turns.py).
turns = []


def take_turns(peer, worker, key, end):
    while time.monotonic_ns() < end:
        turn = [worker, time.monotonic_ns(), 0, 0, 0]
        lock = peer.acquire(key)
        turn[2] = time.monotonic_ns()
        turns.append(turn)
        if number("section_ms"):
            time.sleep(number("section_ms") / 1000)
        turn[3] = time.monotonic_ns()
        peer.release(lock)
        turn[4] = time.monotonic_ns()


def in_thread(function, *arguments):
    """An error in a thread ends the process; otherwise a result could silently lack a worker."""

    def guarded():
        try:
            function(*arguments)
        except BaseException as error:
            print(f"{words['key']}: {error!r}", file=sys.stderr)
            os._exit(70)

    thread = threading.Thread(target=guarded, daemon=True)
    thread.start()
    return thread


def cycle(peer, end):
    """Runs all workers until `end`. Does not wait for workers that still wait then."""
    first = int(words["first"])
    threads = []
    for worker in range(first, first + int(words["workers"])):
        key = f"{words['key']}-{worker}" if words["keys"] == "own" else words["key"]
        threads.append(in_thread(take_turns, peer, worker, key, end))
    for thread in threads:
        thread.join(max(0, end - time.monotonic_ns()) / 1e9)
    with open(words["records"], "wb") as file:
        array.array("q", [number for turn in list(turns) for number in turn]).tofile(file)


held = {}


def ask(peer, key):
    asked = time.monotonic_ns()
    held[key] = peer.acquire(key)
    say("got", key, asked, time.monotonic_ns())


def free(peer, key):
    called = time.monotonic_ns()
    peer.release(held[key])
    say("freed", key, called, time.monotonic_ns())


def work(peer, sends="-"):
    warm = f"{words['key']}-warm-{os.getpid()}"
    peer.release(peer.acquire(warm))
    say("ready", sends)
    for line in sys.stdin:
        verb, _, argument = line.strip().partition(" ")
        if verb == "ask":
            in_thread(ask, peer, argument)
        elif verb == "free":
            in_thread(free, peer, argument)
        elif verb == "cycle":
            cycle(peer, int(argument))
        if verb in ("cycle", "end"):
            break
    os._exit(0)
