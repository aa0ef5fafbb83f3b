"""soak.py - mixed load on a service for some time: what it and its server keep must not grow.

    soak.py ADDRESS SERVICE_PID SERVER_SOCKET SECONDS CURVES [STEPS_PER_SECOND]

Threads acquire, wait, extend, list and release under 20,000 names, leave leases to run out, and hang up in the middle of
a wait. Memory, descriptors, threads and keys are sampled all the while; CURVES gets them as tab-separated values. The first
third warms up. After it, the line through the samples must not rise. Counters of tokens, records of idempotency and the
hashes with tombstones stay for their time; they are sampled, and like every key they must have an end. A tombstone lives for
a minute: those of four busy names are judged if the soak lasts for some minutes."""
import http.client
import json
import os
import random
import subprocess
import sys
import threading
import time

ADDRESS, PID, SOCKET, SECONDS, CURVES = sys.argv[1], int(sys.argv[2]), sys.argv[3], float(sys.argv[4]), sys.argv[5]
THREADS, NAMES = 6, 20000
# How long a thread waits between the beginnings of two steps; 0: no pause.
PACE = THREADS / float(sys.argv[6]) if len(sys.argv) > 6 else 0
KEYS = """local live, kept, endless, tombstones = 0, 0, 0, 0
for _, key in ipairs(redis.call('KEYS', '*')) do
  if redis.call('PTTL', key) == -1 then endless = endless + 1 end
  if key:find('}:[tw]$') or key:find('idempotency', 1, true) then kept = kept + 1 else live = live + 1 end
  if key:find('lock:shared%-%d}:w$') then tombstones = tombstones + redis.call('HLEN', key) end
end
return { live, tombstones, kept, endless }"""
END = time.monotonic() + SECONDS
counts = {"granted": 0, "busy": 0, "left": 0, "expired": 0, "listed": 0}
counting = threading.Lock()
errors = []


def count(what):
    with counting:
        counts[what] += 1


def ask(connection, method, path, body=None, **fields):
    if body is not None:
        fields["Content-Type"] = "application/json"
    connection.request(method, path, json.dumps(body) if body is not None else None, fields)
    answer = connection.getresponse()
    return answer.status, answer.read()


def acquire(connection, name, body, **fields):
    status, text = ask(connection, "POST", f"/v1/locks/{name}/leases", body, **fields)
    if status == 201:
        count("granted")
        return json.loads(text)["leaseId"]
    if status not in (409, 503, 504):  # 504: a busy machine
        errors.append(f"acquire of {name}: {status} {text[:200]}")
    count("busy")
    return None


def hang_up(name):
    connection = http.client.HTTPConnection(ADDRESS, timeout=20)
    connection.request("POST", f"/v1/locks/{name}/leases", json.dumps({"waitMs": 5000}), {"Content-Type": "application/json"})
    time.sleep(0.01)
    connection.close()
    count("left")


def step(connection, draw, number):
    kind = draw.randrange(10)
    name = f"soak-{draw.randrange(NAMES)}" if kind < 6 else f"shared-{draw.randrange(4)}"
    if kind == 0:
        lease = acquire(connection, name, {"ttlMs": 200})
        count("expired")
    elif kind == 1:
        lease = acquire(connection, name, {"ttlMs": 2000}, **{"Idempotency-Key": f"{draw.randrange(1 << 60)}"})
    elif kind == 9:
        lease = acquire(connection, name, {"ttlMs": 2000, "waitMs": 50})
        if lease:
            hang_up(name)
    else:
        lease = acquire(connection, name, {"ttlMs": 2000, "waitMs": 50 if kind > 5 else 0})
    if kind == 2 and lease:
        ask(connection, "PATCH", f"/v1/leases/{lease}", {"ttlMs": 3000})
    if lease and kind != 0:
        ask(connection, "DELETE", f"/v1/leases/{lease}")
    if number % 50 == 0:
        ask(connection, "GET", "/v1/locks?limit=20")
        count("listed")
    if number % 100 == 0:
        connection.close()


def work(seed):
    draw = random.Random(seed)
    connection = http.client.HTTPConnection(ADDRESS, timeout=20)
    number, due = 0, time.monotonic() + PACE * draw.random()
    while time.monotonic() < END and not errors:
        time.sleep(max(0, due - time.monotonic()))
        number, due = number + 1, max(due, time.monotonic() - PACE) + PACE
        try:
            step(connection, draw, number)
        except Exception as error:  # the test must say so, whatever it is
            errors.append(repr(error))


def sample():
    fields = dict(line.split(":", 1) for line in open(f"/proc/{PID}/status") if ":" in line)
    keys = subprocess.run(["redis-cli", "-s", SOCKET, "EVAL", KEYS, "0"], capture_output=True, text=True, check=True).stdout
    descriptors = len(os.listdir(f"/proc/{PID}/fd"))
    return (int(fields["VmRSS"].split()[0]), descriptors, int(fields["Threads"]), *map(int, keys.split()))


def rise(samples, column):
    """By how much the line of least squares rises from the first to the last sample, and their mean."""
    x, y = [s[0] for s in samples], [s[1][column] for s in samples]
    mx, my = sum(x) / len(x), sum(y) / len(y)
    slope = sum((a - mx) * (b - my) for a, b in zip(x, y)) / sum((a - mx) ** 2 for a in x)
    return slope * (x[-1] - x[0]), my


def main():
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(THREADS)]
    samples, begin = [], time.monotonic()
    for thread in threads:
        thread.start()
    with open(CURVES, "w", buffering=1) as curves:
        print("seconds", "rss_kb", "descriptors", "threads", "keys", "tombstones", "kept_keys", "endless_keys", sep="\t", file=curves)
        while time.monotonic() < END:
            samples.append((time.monotonic() - begin, sample()))
            print(f"{samples[-1][0]:.1f}", *samples[-1][1], sep="\t", file=curves)
            time.sleep(max(0.2, SECONDS / 300))
    for thread in threads:
        thread.join()

    warm = samples[len(samples) // 3:]
    print("#", ", ".join(f"{n} {what}" for what, n in counts.items()))
    # What a flat line may rise by: memory 3 % and 1 MB; the others a fifth of their mean and a few, as they come and go.
    failed = bool(errors)
    judged = [("RSS in kB", 0.03, 1024), ("descriptors", 0.2, 8), ("threads", 0, 1), ("keys of locks and queues", 0.2, 60)]
    if SECONDS >= 300:
        judged.append(("tombstones of busy names", 0.2, 60))
    for column, (what, share, least) in enumerate(judged):
        up, mean = rise(warm, column)
        flat = up <= mean * share + least
        failed |= not flat
        print(f"# {what}: mean {mean:.0f}, rises by {up:.0f}{'' if flat else ': NOT FLAT'}")
    print(f"# keys that are kept for their time: {samples[-1][1][5]}")
    if any(s[1][6] for s in samples):
        failed = True
        print("# a key without an end: NOT FLAT")
    for error in errors[:5]:
        print("#", error)
    sys.exit(failed)


main()
