"""results.py - the results of the programs of the bench, and the verdicts of the bars of bars.tsv.

A bar compares within one repetition: both figures come from the same minutes of the same machine. The
median of the repetitions decides."""
import json
from dataclasses import dataclass, field
from statistics import median

RELATIONS = {">=": lambda value, bound: value >= bound, "<=": lambda value, bound: value <= bound}
COLUMNS = ["name", "workload", "metric", "who", "ceiling", "how", "relation", "bound", "text"]


class Results:
    """All results, by workload and by who ran it. A repeated repetition replaces the earlier one."""

    def __init__(self, lines):
        self.found = {}
        for line in lines:
            if "workload" in line:
                self.found.setdefault(line["workload"], {}).setdefault(line["who"], {})[line["rep"]] = line

    @classmethod
    def read(cls, path):
        with open(path) as file:
            return cls([parsed(path, number, text) for number, text in enumerate(file, 1) if text.strip()])

    def workloads(self):
        return list(self.found)

    def whos(self, workload):
        return list(self.found.get(workload, {}))

    def lines(self, workload, who):
        """Results by repetition; empty if the workload was not run."""
        return self.found.get(workload, {}).get(who, {})

    def values(self, workload, who, metric):
        """The metric by repetition, for each repetition that has it."""
        return {rep: line[metric] for rep, line in self.lines(workload, who).items() if line.get(metric) is not None}

    def spread(self, workload, who, metric):
        """(median, least, most) of the repetitions; None if none has the metric."""
        values = self.values(workload, who, metric).values()
        return (median(values), min(values), max(values)) if values else None


def parsed(path, number, text):
    try:
        return json.loads(text)
    except ValueError as error:
        raise SystemExit(f"{path}:{number}: not a line of JSON: {error}")


@dataclass
class Bar:
    name: str
    workload: str
    metric: str
    who: str
    ceiling: str  # "-": none; WHO@WORKLOAD: a figure of another workload
    how: str
    relation: str
    bound: float
    text: str
    each: list = field(default_factory=list)  # the value or ratio of each repetition

    @property
    def middle(self):
        return median(self.each) if self.each else None

    @property
    def verdict(self):
        if not self.each:
            return "not measured"
        return "met" if RELATIONS[self.relation](self.middle, self.bound) else "missed"

    def judge(self, results):
        ours = results.values(*place(self.who, self.workload), self.metric)
        if self.how == "value":
            self.each = list(ours.values())
        else:
            theirs = results.values(*place(self.ceiling, self.workload), self.metric)
            self.each = [ours[rep] / theirs[rep] for rep in ours if theirs.get(rep)]
        return self


def place(who, workload):
    """(workload, who) of "WHO" or "WHO@WORKLOAD"."""
    who, _, other = who.partition("@")
    return other or workload, who


def read_bars(path):
    """One bar a line, columns separated by tabs; lines that begin with # are comments."""
    bars = []
    with open(path) as file:
        for number, line in enumerate(file, 1):
            if line.startswith("#") or not line.strip() or line.split("\t")[:2] == COLUMNS[:2]:
                continue
            bars.append(bar_of(line.rstrip("\n").split("\t"), f"{path}:{number}"))
    return bars


def bar_of(columns, where):
    if len(columns) != len(COLUMNS):
        raise SystemExit(f"{where}: {len(columns)} columns instead of {len(COLUMNS)}")
    known = dict(zip(COLUMNS, columns))
    if known["how"] not in ("ratio", "value") or known["relation"] not in RELATIONS:
        raise SystemExit(f"{where}: '{known['how']}' must be ratio or value, '{known['relation']}' must be >= or <=")
    return Bar(**{**known, "bound": float(known["bound"])})
