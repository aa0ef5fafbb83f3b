#!/usr/bin/python3 -B
"""report.py - writes docs/benchmarks.md and its pictures from the results of the bench.

    bench/report.py [RESULTS [BARS [DOCS]]]

The defaults are build/bench/results.jsonl, bench/bars.tsv and docs. The page is DOCS/benchmarks.md, and
the pictures are in DOCS/bench. On the page only the part between the lines `<!-- bench:begin -->` and
`<!-- bench:end -->` is replaced. Missed bars are printed on stdout; the last line counts the bars that
are met. A missed bar is not an error: the exit code is 0."""
import argparse
import os
import re
from datetime import datetime, timezone

import charts
import machine
import pictures
from results import Results, read_bars

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"

# Columns of the tables: heading, format of a figure, its metrics, and whether the spread is shown.
COLUMNS = [
    ("a second", charts.short, ["per_s"], True),
    ("p50", charts.time_us, ["p50_us"], True),
    ("p99", charts.time_us, ["p99_us"], False),
    ("p99.9", charts.time_us, ["p999_us"], False),
    ("handoff p50", charts.time_us, ["handoff_p50_us"], True),
    ("handoff p99", charts.time_us, ["handoff_p99_us"], False),
    ("least / most", charts.short, ["least", "most"], False),
    ("Jain", lambda value: f"{value:.4f}", ["jain"], False),
    ("longest gap", lambda value: charts.time_us(value * 1000), ["longest_gap_ms"], False),
    ("commands each", charts.short, ["commands_per_op"], False),
    ("commands/s", charts.short, ["commands_per_s"], True),
    ("client CPU", charts.time_us, ["client_cpu_us"], False),
    ("server CPU", charts.time_us, ["server_cpu_us"], False),
    ("server, scripts", charts.time_us, ["script_us"], False),
    ("memory before", lambda kb: f"{kb / 1024:,.1f} MB", ["rss_before_kb"], False),
    ("memory", lambda kb: f"{kb / 1024:,.1f} MB", ["rss_kb"], False),
    ("bytes each", charts.short, ["bytes_each"], False),
    ("overlaps", charts.short, ["overlaps"], False),
]


# ---- Tables ----


def table(headings, rows):
    return [f"| {' | '.join(row)} |" for row in (headings, ["---"] * len(headings), *rows)]


def cell(results, workload, who, column):
    _, show, metrics, spreads = column
    found = [results.spread(workload, who, metric) for metric in metrics]
    if None in found:
        return ""
    text = " / ".join(show(middle) for middle, _, _ in found)
    _, least, most = found[0]
    return f"{text} ({show(least)}–{show(most)})" if spreads and show(least) != show(most) else text


def notes_of(results, workload, who):
    lines = results.lines(workload, who).values()
    return list(dict.fromkeys(part for line in lines for part in line.get("note", "").split("; ") if part))


def lasting_notes(results, who):
    """Notes that all results of `who` share: they are printed once, in the list of who is who."""
    sets = [notes for notes in (notes_of(results, workload, who) for workload in results.workloads()) if notes]
    return [note for note in sets[0] if all(note in notes for notes in sets)] if len(sets) > 1 else []


def workload_table(results, workload):
    whos = sorted(results.whos(workload), key=charts.order)
    columns = [c for c in COLUMNS if any(cell(results, workload, who, c) for who in whos)]
    rows = []
    for who in whos:
        notes = [note for note in notes_of(results, workload, who) if note not in lasting_notes(results, who)]
        name = f"**{who}**" if charts.kind_of(who) == "ours" else who
        rows.append([name, *(cell(results, workload, who, c) for c in columns), "; ".join(notes)])
    headings = ["who", *(c[0] for c in columns), "note"]
    if not any(row[-1] for row in rows):
        headings, rows = headings[:-1], [row[:-1] for row in rows]
    return table(headings, rows)


def bars_table(bars):
    rows = []
    for bar in bars:
        middle = number(bar.middle) if bar.each else ""
        least_most = f"{number(min(bar.each))}–{number(max(bar.each))}" if len(bar.each) > 1 else ""
        verdict = f"**{bar.verdict}**" if bar.verdict == "missed" else bar.verdict
        compared = f"{bar.who} to {bar.ceiling}" if bar.how == "ratio" else bar.who
        figure = f"{bar.workload}: {bar.metric}, {compared}"
        rows.append([bar.name, bar.text, figure, f"{bar.relation} {bar.bound:g}", middle, least_most, verdict])
    return table(["bar", "meaning", "figure", "bound", "median", "spread", ""], rows)


def number(value):
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


# ---- The page ----


def tally(bars):
    return ", ".join(f"{sum(bar.verdict == v for bar in bars)} {v}" for v in ("met", "missed", "not measured"))


def bars_section(bars):
    said = f"{tally(bars)}. A ratio is taken within each repetition; the median decides."
    return ["### Bars", "", said, "", *bars_table(bars), ""]


def pictures_section(drawn):
    text = ["### Pictures", ""]
    for picture in pictures.PICTURES:
        name, shows = picture.__name__, picture.__doc__
        drawn_so = f"![{shows}](bench/{name}.svg)"
        text += [drawn_so if picture in drawn else f"No picture of {shows}: there are no results.", ""]
    return text


def who_section(results):
    whos = sorted({who for workload in results.workloads() for who in results.whos(workload)}, key=charts.order)
    known = [(who, lasting_notes(results, who)) for who in whos]
    return ["### Who", "", *(f"- {who}: {'; '.join(notes)}" for who, notes in known if notes), ""]


def workloads_section(results):
    text = ["### All figures", ""]
    for workload in sorted(results.workloads(), key=natural):
        text += [f"#### {workload}", "", *workload_table(results, workload), ""]
    return text


def natural(text):
    """contended-2 before contended-10."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", text)]


def reps_of(results):
    """The smallest and largest number of repetitions of a workload through the library."""
    counts = [len(results.lines(w, "holdfast")) for w in results.workloads() if results.lines(w, "holdfast")]
    return (min(counts), max(counts)) if counts else (0, 0)


def write_page(page, text):
    old = f"# Benchmarks\n\n{BEGIN}\n{END}\n"
    if os.path.exists(page):
        with open(page) as file:
            old = file.read()
    before, begin, rest = old.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{page}: the lines {BEGIN} and {END} are missing")
    with open(page, "w") as file:
        file.write(f"{before}{BEGIN}\n" + "\n".join(text).rstrip() + f"\n{END}{after}")


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("results", nargs="?", default=os.path.join(ROOT, "build/bench/results.jsonl"))
    parser.add_argument("bars", nargs="?", default=os.path.join(ROOT, "bench/bars.tsv"))
    parser.add_argument("docs", nargs="?", default=os.path.join(ROOT, "docs"))
    return parser.parse_args()


def main():
    args = parse()
    results = Results.read(args.results)
    bars = [bar.judge(results) for bar in read_bars(args.bars)]
    date = datetime.fromtimestamp(os.path.getmtime(args.results), timezone.utc).strftime("%Y-%m-%d")
    drawn = pictures.draw(results, os.path.join(args.docs, "bench"))
    about = machine.lines(date, reps_of(results))
    write_page(os.path.join(args.docs, "benchmarks.md"), ["", *about, *bars_section(bars), *pictures_section(drawn),
                                                          *who_section(results), *workloads_section(results)])
    for bar in bars:
        if bar.verdict == "missed":
            print(f"missed: {bar.name}: {number(bar.middle)}, not {bar.relation} {bar.bound:g}: {bar.text}")
    print(f"bars: {tally(bars)}")


if __name__ == "__main__":
    main()
