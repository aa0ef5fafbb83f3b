"""charts.py - the two kinds of picture of the bench: points in rows, and lines over workers.

Pictures are SVG and follow the reader's light or dark theme. Scales are logarithmic, or linear for
shares. A value is (median, least, most) of the repetitions, or a text that says why there is none.
Such a text is printed instead of a point."""
import math
from html import escape

WIDTH = 780
FONT = 13
LETTER = 0.56 * FONT  # usual width of a letter, rather too large
STEP = 18  # from one point of a row to the next
# A peer has the same colour in every picture. A peer that is not listed gets a colour by its name.
PEERS = {
    "redlock4": "#4f8fc0", "redlock5": "#b08830", "redis-semaphore": "#7f8c2f", "simple-redis-mutex": "#a8665a",
    "ioredis": "#c4752b", "python-redis": "#c2577e", "etcd-gateway": "#2a9d8f", "pg-advisory": "#8f6fd1",
}
POINT = "#2a9d8f"
STYLE = """
text{font:13px system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;fill:#2b3340}
.sheet{fill:#fbfcfd;stroke:#d9dfe6}.title{font-size:16px;font-weight:600}.soft{fill:#6a7482;font-size:12px}
.grid{stroke:#e3e8ee}.ours{fill:#1f6fd0}.ours-line{stroke:#1f6fd0}.ceiling{fill:#6a7482}.ceiling-line{stroke:#8b95a3}
.bold{font-weight:600}
@media (prefers-color-scheme:dark){text{fill:#d5dbe4}.sheet{fill:#161b22;stroke:#30363d}.soft{fill:#93a0b0}
.grid{stroke:#2a313a}.ours{fill:#5aa2f5}.ours-line{stroke:#5aa2f5}.ceiling{fill:#93a0b0}.ceiling-line{stroke:#7d8896}}
"""


def time_us(value):
    """A time in microseconds as text with a fitting unit."""
    for size, unit in ((1e6, "s"), (1e3, "ms"), (1, "µs")):
        if value >= size:
            return f"{short(value / size)} {unit}"
    return f"{value * 1000:.0f} ns"


def short(value):
    """The value with three digits."""
    return f"{value:,.0f}" if value >= 99.5 else f"{value:.3g}"


class Scale:
    """Maps values to positions between two pixels."""

    def __init__(self, values, start, end, plain=False):
        self.start, self.end, self.plain = start, end, plain
        above = [value for value in values if value > 0] or [1]
        self.low = 0 if plain else math.floor(math.log10(min(above)))
        self.high = 1 if plain else max(math.ceil(math.log10(max(above))), self.low + 1)

    def __call__(self, value):
        """A logarithmic scale has no place for 0, so 0 is drawn at its beginning."""
        place = value if self.plain else math.log10(value) if value > 0 else self.low
        share = (place - self.low) / (self.high - self.low)
        return self.start + (self.end - self.start) * min(1, max(0, share))

    def ticks(self):
        return [i / 5 for i in range(6)] if self.plain else [10.0**power for power in range(self.low, self.high + 1)]


class Picture:
    def __init__(self, title, subtitle, height):
        self.height = height
        self.parts = [f'<rect class="sheet" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="8"/>']
        self.text(20, 30, title, "title")
        self.text(20, 50, subtitle, "soft")
        self.title = title

    def text(self, x, y, text, kind="", anchor="start", colour=None):
        style = f' style="fill:{colour}"' if colour else ""
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}"{style}>'
                          f'{escape(text)}</text>')

    def line(self, x1, y1, x2, y2, kind="grid", colour=None, width=1.0, dashed=False):
        style = (f' stroke="{colour}"' if colour else "") + (' stroke-dasharray="5 4"' if dashed else "")
        self.parts.append(f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
                          f'stroke-width="{width}"{style}/>')

    def dot(self, x, y, kind="", colour=None):
        self.parts.append(f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="4.5"{fill(colour)}/>')

    def save(self, path):
        with open(path, "w") as file:
            file.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.height}" width="{WIDTH}" '
                       f'role="img">\n<title>{escape(self.title)}</title>\n<style>{STYLE}</style>\n'
                       + "\n".join(self.parts) + "\n</svg>\n")


def fill(colour):
    return f' fill="{colour}"' if colour else ""


def kind_of(who):
    """The style: Holdfast stands out, ceilings are neutral, and each peer has its own colour."""
    return "ours" if who.startswith("holdfast") else "ceiling" if who.startswith("bare") else ""


def colour_of(who):
    """None if the style of its kind has the colour."""
    others = list(PEERS.values())
    return None if kind_of(who) else PEERS.get(who, others[sum(who.encode()) % len(others)])


def name_style(who):
    return "ours bold" if kind_of(who) == "ours" else kind_of(who)


def order(who):
    """Sort key: Holdfast, then the ceilings, then the others."""
    return {"ours": 0, "ceiling": 1, "": 2}[kind_of(who)], who


def points(path, title, subtitle, rows, show, states=None, plain=False):
    """Rows of (who, {state: value}): a point for each value, with its spread as a line. `states`
    maps names to colours if a row has several values."""
    states = states or {"": None}
    legend = 24 if len(states) > 1 else 0
    top = 66 + legend
    bottom = top + sum(10 + STEP * len(values) for _, values in rows)
    picture = Picture(title, subtitle, bottom + 36)
    left = 36 + max(len(who) for who, _ in rows) * LETTER
    known = [value for _, values in rows for value in values.values() if not isinstance(value, str)]
    scale = Scale([number for value in known for number in value], left, WIDTH - 130, plain)
    draw_ticks(picture, scale, top, bottom, show)
    draw_legend(picture, states if legend else {})
    y = top
    for who, values in rows:
        draw_row(picture, scale, y, who, {states[state]: value for state, value in values.items()}, show)
        y += 10 + STEP * len(values)
    picture.save(path)


def draw_row(picture, scale, top, who, values, show):
    """`values` maps colours to values; colour None stands for the colour of the kind."""
    kind = kind_of(who)
    picture.text(scale.start - 16, top + 9 + STEP * len(values) / 2, who, name_style(who), "end")
    for i, (colour, value) in enumerate(values.items()):
        y = top + 5 + STEP * (i + 0.5)
        if isinstance(value, str):
            picture.text(scale.start + 8, y + 4, value, "soft", colour=colour)
        elif colour or kind:
            draw_point(picture, scale, y, value, show, "" if colour else kind, colour)
        else:
            draw_point(picture, scale, y, value, show, kind, POINT)


def draw_ticks(picture, scale, top, bottom, show):
    for tick in scale.ticks():
        picture.line(scale(tick), top, scale(tick), bottom)
        picture.text(scale(tick), bottom + 20, show(tick), "soft", "middle")


def draw_legend(picture, states):
    x = 24
    for name, colour in states.items():
        picture.dot(x, 72, "", colour)
        picture.text(x + 10, 76, name, "soft")
        x += 40 + len(name) * LETTER


def draw_point(picture, scale, y, value, show, kind, colour):
    """A thin line from the left edge leads from the name to the point."""
    middle, least, most = value
    picture.line(scale.start, y, scale(middle), y)
    picture.line(scale(least), y, scale(most), y, f"{kind}-line", colour, 3)
    picture.dot(scale(middle), y, kind, colour)
    picture.text(max(scale(middle), scale(most)) + 10, y + 4, show(middle), kind)


def lines(path, title, subtitle, xs, series, show, x_name):
    """Series of (who, {x: value}) over equidistant xs; each line is named at its right end."""
    top, bottom, left = 70, 400, 80
    right = WIDTH - 40 - max(len(who) for who, _ in series) * LETTER
    picture = Picture(title, subtitle, 450)
    known = [number for _, values in series for value in values.values() for number in value]
    scale = Scale(known, bottom, top)
    place = {x: left + (right - left) * (i + 0.15) / (len(xs) - 0.7) for i, x in enumerate(xs)}
    for tick in scale.ticks():
        picture.line(left, scale(tick), right, scale(tick))
        picture.text(left - 10, scale(tick) + 4, show(tick), "soft", "end")
    for x in xs:
        picture.text(place[x], bottom + 20, f"{x:,}", "soft", "middle")
    picture.text((left + right) / 2, bottom + 40, x_name, "soft", "middle")
    drawn = [(who, values, colour_of(who)) for who, values in series if values]
    for who, values, colour in reversed(drawn):
        draw_line(picture, scale, place, values, kind_of(who), colour)
    name_lines(picture, scale, place, drawn, top, bottom, right)
    picture.save(path)


def draw_line(picture, scale, place, values, kind, colour):
    """Only the points were measured; the line joins them."""
    xs = [x for x in place if x in values]
    width = 3 if kind == "ours" else 2
    for x, after in zip(xs, xs[1:]):
        ends = place[x], scale(values[x][0]), place[after], scale(values[after][0])
        picture.line(*ends, f"{kind}-line", colour, width, kind == "ceiling")
    for x, (middle, least, most) in values.items():
        picture.line(place[x], scale(least), place[x], scale(most), f"{kind}-line", colour, width)
        picture.dot(place[x], scale(middle), kind, colour)


def name_lines(picture, scale, place, drawn, top, bottom, right):
    ends = []
    for who, values, colour in drawn:
        x = max(values, key=lambda x: place[x])
        ends.append([scale(values[x][0]), who, colour, place[x], scale(values[x][0])])
    spread(ends, top, bottom)
    for y, who, colour, end_x, end_y in ends:
        picture.line(end_x + 6, end_y, right + 4, y, f"{kind_of(who)}-line", colour, 0.6)
        picture.text(right + 8, y + 4, who, name_style(who), "start", colour)


def spread(ends, top, bottom, apart=15):
    """Moves names that would overlap: down, and back up at the lower edge of the picture."""
    ends.sort()
    for before, after in zip(ends, ends[1:]):
        after[0] = max(after[0], before[0] + apart)
    if ends and ends[-1][0] > bottom:
        ends[-1][0] = bottom
    for after, before in zip(ends[::-1], ends[-2::-1]):
        before[0] = min(before[0], after[0] - apart)
