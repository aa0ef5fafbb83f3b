#!/usr/bin/env python3
"""policies_table.py - the table of bench/policies: what each policy changes, from policies.jsonl.

A line has the medians with the policy on and off, and the median of the ratios on / off taken
within each repetition. For counts and times less is better, for turns a second more."""
import collections
import json
import statistics
import sys

COLUMNS = [("per_s", "turns a second", 0), ("p50_us", "p50 in µs", 1),
           ("client_cpu_us", "client CPU in µs", 1), ("calls", "system calls", 2),
           ("sends", "sends", 2), ("switches", "context switches", 2)]
CALLS = ["sends", "receives", "polls", "futexes", "other_calls"]


def read(path):
    """{(policy, workload, settings): {(rep, who): figures}}"""
    table = collections.defaultdict(lambda: collections.defaultdict(dict))
    for line in open(path):
        row = json.loads(line)
        key = row["policy"], row["workload"], row["settings"]
        figures = table[key][row["rep"], row["who"]]
        if row.get("counts"):
            counts = {name: row[name] for name in CALLS + ["switches"]}
            counts["calls"] = sum(row[name] for name in CALLS)
            figures.update({name: count / figures["ops"] for name, count in counts.items()})
        else:
            figures.update(row)
    return table


def pairs(runs, policy, column):
    for rep in sorted({rep for rep, _ in runs}):
        on, off = runs.get((rep, "all-on"), {}), runs.get((rep, "without-" + policy), {})
        if on.get(column) is not None and off.get(column):
            yield on[column], off[column]


def cell(runs, policy, column, digits):
    both = list(pairs(runs, policy, column))
    if not both:
        return ""
    on, off = (statistics.median(side) for side in zip(*both))
    ratio = statistics.median(a / b for a, b in both)
    return f"{on:,.{digits}f} / {off:,.{digits}f} ({ratio:.2f})"


def main():
    print("| policy | workload | " + " | ".join(title for _, title, _ in COLUMNS) + " |")
    print("|---" * (len(COLUMNS) + 2) + "|")
    for (policy, workload, settings), runs in read(sys.argv[1]).items():
        cells = [cell(runs, policy, column, digits) for column, _, digits in COLUMNS]
        print(f"| {policy} | {workload}{' ' + settings[1:] if settings else ''} | " + " | ".join(cells) + " |")


main()
