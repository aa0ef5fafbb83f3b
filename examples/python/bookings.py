"""bookings.py - guests book seats in a SQLite file: one booking for each seat, whoever dies or is slow.

    bookings.py [URL]
"""
import contextlib
import multiprocessing
import os
import signal
import sqlite3
import sys
import tempfile
import time

import holdfast

MINE = "UPDATE seats SET guest = ?, token = ? WHERE seat = ? AND token < ?"


def book(locks, file, guest, seat, think=0.0, **options):
    """Books the seat unless it is taken. A lease that was lost has nothing to say here: the database
    compares tokens, and refuses a guest who comes too late."""
    outcome = "nothing"
    with contextlib.suppress(holdfast.Lost), contextlib.closing(sqlite3.connect(file)) as db:
        with locks.lock("seat/" + seat, wait=20, **options) as lease:
            holder = db.execute("SELECT guest FROM seats WHERE seat = ?", (seat,)).fetchone()[0]
            if holder:
                outcome = "is taken"
            else:
                time.sleep(think)  # the guest looks for a credit card
                with db:
                    changed = db.execute(MINE, (guest, lease.token, seat, lease.token)).rowcount
                outcome = "is booked" if changed else "is refused: the token is too old"
    print(f"{guest}: seat {seat} {outcome}", flush=True)
    return outcome


def guest_process(url, file, outcomes, *args, **options):
    with holdfast.Client(url) as locks:
        outcomes.put((args[0], book(locks, file, *args, **options)))


def start(url, file, outcomes, *args, **options):
    process = multiprocessing.Process(target=guest_process, args=(url, file, outcomes, *args), kwargs=options)
    process.start()
    return process


def wait_for_holder(locks, seat):
    while not locks.list("seat/" + seat):
        time.sleep(0.01)


def at_once(url, locks, file, outcomes):
    """Five guests want one seat at the same instant."""
    for process in [start(url, file, outcomes, f"guest {i}", "1A") for i in range(5)]:
        process.join()
    said = [outcomes.get()[1] for _ in range(5)]
    assert sorted(said) == ["is booked"] + ["is taken"] * 4, said


def killed(url, locks, file, outcomes):
    """One dies while it holds the lock: the next one books, at the latest when the ttl is over."""
    dying = start(url, file, outcomes, "anna", "2B", 30.0, ttl=1)
    wait_for_holder(locks, "2B")
    os.kill(dying.pid, signal.SIGKILL)
    dying.join()
    assert book(locks, file, "ben", "2B") == "is booked"


def late(url, locks, file, outcomes):
    """One is so slow that its lease ends before it writes."""
    slow = start(url, file, outcomes, "carla", "3C", 1.5, ttl=0.5, renew=False)
    wait_for_holder(locks, "3C")
    assert book(locks, file, "dirk", "3C") == "is booked"
    slow.join()
    assert outcomes.get() == ("carla", "is refused: the token is too old")


def main():
    url = sys.argv[1] if len(sys.argv) > 1 else None
    outcomes = multiprocessing.Queue()
    with tempfile.TemporaryDirectory() as folder, holdfast.Client(url) as locks:
        file = os.path.join(folder, "seats.db")
        with contextlib.closing(sqlite3.connect(file)) as db, db:
            db.execute("CREATE TABLE seats (seat TEXT PRIMARY KEY, guest TEXT, token INTEGER NOT NULL)")
            db.executemany("INSERT INTO seats VALUES (?, NULL, 0)", [("1A",), ("2B",), ("3C",)])
        for story in at_once, killed, late:
            story(url, locks, file, outcomes)
    print("proved: one of five guests got the seat; a killed guest's seat went to the next; a late write was refused by its token")


if __name__ == "__main__":
    main()
