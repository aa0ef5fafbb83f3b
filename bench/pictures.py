"""pictures.py - the pictures that the bench draws of its results."""
import os
import re

import charts


def crowd(results, section, metric):
    """The sizes N of contended-N plus `section`, and for each `who` its values by size."""
    sizes = sorted(int(m[1]) for m in (re.fullmatch(rf"contended-(\d+){section}", w) for w in results.workloads()) if m)
    whos = dict.fromkeys(who for size in sizes for who in results.whos(f"contended-{size}{section}"))
    series = []
    for who in sorted(whos, key=charts.order):
        values = {size: results.spread(f"contended-{size}{section}", who, metric) for size in sizes}
        series.append((who, {size: value for size, value in values.items() if value and value[0] > 0}))
    return sizes, [(who, values) for who, values in series if values]


def rows(results, states, metric, missing, best=min):
    """A row for each `who` that ran one of the workloads (by state), best first. A row without a
    figure says `missing`."""
    whos = dict.fromkeys(who for workload in states.values() for who in results.whos(workload))
    found = []
    for who in whos:
        run = {state: workload for state, workload in states.items() if who in results.whos(workload)}
        found.append((who, {state: results.spread(run[state], who, metric) or missing for state in run}))
    sign = 1 if best is min else -1

    def rank(value):
        return float("inf") if isinstance(value, str) else sign * value[0]

    return sorted(found, key=lambda row: [rank(value) for value in row[1].values()])


def is_common(who):
    """Pictures show what people use; variants are in the tables only."""
    return not who.endswith("-5ms") and who not in ("holdfast-threads", "etcdctl", "bare-lock", "bare-queue")


def draw_crowd(results, path, section, metric, title, subtitle):
    sizes, series = crowd(results, section, metric)
    series = [one for one in series if is_common(one[0])]
    if len(sizes) > 1 and series:
        charts.lines(path, title, subtitle, sizes, series, charts.short, "workers")
    return len(sizes) > 1 and bool(series)


def draw_rows(results, path, workloads, metric, show, title, subtitle, missing="no figure", best=min, **more):
    """`workloads` is one workload, or a dict of several by state."""
    found = rows(results, {"": workloads} if isinstance(workloads, str) else workloads, metric, missing, best)
    known = any(not isinstance(value, str) for _, values in found for value in values.values())
    if known:
        charts.points(path, title, subtitle, found, show, **more)
    return known


QUORUM = {"all five healthy": "redlock-5", "two killed": "redlock-5-two-dead", "one hangs": "redlock-5-one-hung"}
QUORUM_COLOURS = {"all five healthy": "#2a9d8f", "two killed": "#c4752b", "one hangs": "#c2577e"}


def contended(results, path):
    """acquisitions a second at one lock, by the number of workers"""
    return draw_crowd(results, path, "", "per_s", "One lock that everybody wants: acquisitions a second",
                      "Critical section of 0 ms. Higher is better; logarithmic scale. Read it beside the fairness.")


def fairness(results, path):
    """how evenly 100 workers got one lock"""
    return draw_rows(results, path, "contended-100", "jain", lambda value: f"{value:.2f}",
                     "Fairness among 100 workers (Jain's index)",
                     "1: all got the lock equally often; 0.01: one got it always. Higher is better.",
                     best=max, plain=True)


def handoff(results, path):
    """from the release to the return of the waiter"""
    return draw_rows(results, path, "handoff", "handoff_p50_us", charts.time_us,
                     "Handoff: from the release to the return of the waiter",
                     "Median; the line is the spread of the repetitions. Lower is better; logarithmic scale.")


def commands(results, path):
    """commands that the server gets for each acquisition, by the number of workers"""
    return draw_crowd(results, path, "-1ms", "commands_per_op", "Commands that Redis gets for each acquisition",
                      "One lock, critical section of 1 ms. Lower is better; logarithmic scale.")


def idle(results, path):
    """commands a second of 100 idle waiters"""
    return draw_rows(results, path, "idle-100", "commands_per_s", charts.short,
                     "100 waiters, nothing happens: commands a second", "Lower is better; logarithmic scale.",
                     missing="waits inside its own server: not counted")


def redlock(results, path):
    """a turn on five servers, healthy and with failed servers"""
    return draw_rows(results, path, QUORUM, "p50_us", charts.time_us,
                     "Redlock on five servers: one turn, acquire and release",
                     "Median. Lower is better; logarithmic scale.",
                     missing="nobody held while it was measured", states=QUORUM_COLOURS)


# Each function is named as its file. Its docstring says what the picture shows, and is printed on
# the page. It returns whether there was anything to draw. README shows handoff.
PICTURES = [contended, fairness, handoff, commands, idle, redlock]


def draw(results, folder):
    """Returns the pictures that were drawn. Removes old files of the others."""
    os.makedirs(folder, exist_ok=True)
    drawn = []
    for picture in PICTURES:
        path = os.path.join(folder, f"{picture.__name__}.svg")
        if picture(results, path):
            drawn.append(picture)
        elif os.path.exists(path):
            os.unlink(path)
    return drawn
