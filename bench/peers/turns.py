"""turns.py - figures from the turns that workers recorded: throughput, latencies, handoffs,
fairness, overlaps.

A turn is (worker, acquire called, acquire returned, release called, release returned). Times are
nanoseconds of the monotonic clock, which all processes of the machine share; 0 if that had not
happened when the run ended."""
import array


def read(path):
    numbers = array.array("q")
    with open(path, "rb") as file:
        numbers.frombytes(file.read())
    return [tuple(numbers[i:i + 5]) for i in range(0, len(numbers), 5)]


def quantile(values, share):
    """The smallest value that `share` of all values do not exceed; None without values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None


def jain(counts):
    squares = sum(count * count for count in counts)
    return sum(counts) ** 2 / (len(counts) * squares) if squares else None


def overlaps(turns, capacity, end):
    """Number of acquisitions while `capacity` others held the lock, as the workers saw it."""
    events = [(held, 1) for _, held, _ in spans(turns, end)] + [(gave, 0) for _, _, gave in spans(turns, end)]
    inside = found = 0
    for _, came in sorted(events):
        inside += 1 if came else -1
        found += bool(came) and inside > capacity
    return found


def spans(turns, end):
    return [(worker, held, gave or max(end, held)) for worker, _, held, gave, _ in turns if held]


def handovers(turns):
    """Times from the call of a release to the return of the next acquire, if that was called before
    the release. For locks with one holder."""
    ordered = sorted(turn for turn in ((t[2], t[1], t[3]) for t in turns) if turn[0])
    pairs = zip(ordered, ordered[1:])
    return [held - gave for (_, _, gave), (held, asked, _) in pairs if gave and asked < gave <= held]


def longest_gap(turns, start, end):
    """The longest time without a grant."""
    times = [start, *sorted(turn[2] for turn in turns if turn[2]), end]
    return max(later - earlier for earlier, later in zip(times, times[1:]))


def in_us(values, **names):
    return {name: round(quantile(values, share) / 1000, 3) for name, share in names.items() if values}


def figures(turns, workers, seconds, end, capacity=1, shared=True):
    """The fields of a result; only turns that ended in time count. `shared`: all workers want the
    same lock, not one each."""
    start = end - int(seconds * 1e9)
    done = [turn for turn in turns if 0 < turn[4] <= end]
    cycles = [back - asked for _, asked, _, _, back in done]
    line = {"ops": len(done), "per_s": round(len(done) / seconds, 1)}
    line.update(in_us(cycles, p50_us=0.5, p99_us=0.99, p999_us=0.999))
    if workers > 1:
        counts = [0] * workers
        for turn in done:
            counts[turn[0]] += 1
        line.update(least=min(counts), most=max(counts), jain=jain(counts) and round(jain(counts), 4))
    if workers > 1 and shared:
        line["overlaps"] = overlaps(turns, capacity, end)
        line["longest_gap_ms"] = round(longest_gap(done, start, end) / 1e6, 3)
        if capacity == 1:
            line.update(in_us(handovers(done), handoff_p50_us=0.5, handoff_p99_us=0.99))
    return line
