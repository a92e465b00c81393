"""A moving picture (SVG) of what a terminal showed.

It knows frames, not terminals. Each line is drawn once for each way it grew; the parts by which it grew become visible when
they came, by CSS animations that all have the same length, so that they repeat together.
"""

from dataclasses import dataclass
from html import escape
from itertools import groupby

WIDTH, HEIGHT, BASELINE, MARGIN = 8.43, 20, 5, 16
# Seconds for which the last frame stays.
REST = 4.0
COLOURS = {"green": "#8ccba4", "cyan": "#8fc7d6", "yellow": "#d8ba83", "brown": "#d8ba83", "red": "#f0998a", "blue": "#93b4e8",
           "magenta": "#cfa5dd"}
STYLE = """svg{background:#151715;border-radius:8px}
text{font:14px ui-monospace,"SF Mono",Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:#e5e6e0;white-space:pre}
.b{font-weight:700}.i{font-style:italic}.d{fill:#9da299}
"""


@dataclass
class Span:
    """Text of one look; `look` is a list of classes."""

    text: str
    look: str


@dataclass
class Frame:
    """The screen at a time: all lines since the start, and how many of them have scrolled away."""

    time: float
    lines: list[list[Span]]
    n_above: int


@dataclass
class Growth:
    """A line that only gets longer: its parts and when they came, and when something else takes its place."""

    y: int
    parts: list[tuple[float, Span]]
    end: float | None = None


def look_of(cell) -> str:
    colour = cell.fg.removeprefix("bright")
    # Dim is no attribute that pyte knows; bright black is how most programs dim.
    looks = [("b", cell.bold), ("i", cell.italics), (colour, colour in COLOURS), ("d", cell.fg in ("black", "brightblack"))]
    return " ".join(name for name, has in looks if has)


def spans_of(cells, n_columns: int) -> list[Span]:
    """A line of pyte's buffer without the spaces at its end."""
    row = [cells[x] for x in range(n_columns)]
    while row and row[-1].data == " ":
        row.pop()
    return [Span("".join(cell.data for cell in group), look) for look, group in groupby(row, look_of)]


def added(old: list[Span], new: list[Span]) -> list[Span] | None:
    """What `new` has behind `old`, if it begins with it."""
    rest = [Span(span.text, span.look) for span in new]
    for span in old:
        if not rest or rest[0].look != span.look or not rest[0].text.startswith(span.text):
            return None
        rest[0].text = rest[0].text[len(span.text):]
        if not rest[0].text:
            rest.pop(0)
        elif span is not old[-1]:
            return None
    return rest


def growths(frames: list[Frame]) -> list[Growth]:
    """How all lines came."""
    seen: dict[int, list[Span]] = {}
    open_: dict[int, Growth] = {}
    done: list[Growth] = []
    for frame in frames:
        for y in range(max(len(frame.lines), max(seen, default=-1) + 1)):
            new = frame.lines[y] if y < len(frame.lines) else []
            more = added(seen.get(y, []), new)
            if more is None:
                open_[y].end = frame.time
                done.append(open_.pop(y))
                more = new
            if more:
                open_.setdefault(y, Growth(y, [])).parts.extend((frame.time, span) for span in more)
            seen[y] = new
    return done + list(open_.values())


class Times:
    """Classes of animations by the time from which, and to which, something is visible."""

    def __init__(self, length: float):
        self.length = length
        self.names: dict[tuple[float, float | None], str] = {}

    def name(self, start: float, end: float | None) -> str:
        return self.names.setdefault((start, end), f"t{len(self.names)}")

    def percent(self, time: float) -> str:
        return f"{100 * time / self.length:.2f}%"

    def style(self) -> str:
        rules = [f"tspan{{animation:{self.length:.1f}s step-end infinite}}"]
        for (start, end), name in self.names.items():
            hidden = f"0%{',' + self.percent(end) if end is not None else ''}{{visibility:hidden}}"
            rules.append(f"@keyframes {name}{{{hidden}{self.percent(start)}{{visibility:visible}}}}.{name}{{animation-name:{name}}}")
        return "\n".join(rules)


def line(growth: Growth, times: Times) -> str:
    parts = []
    for time, span in growth.parts:
        classes = f"{span.look} {times.name(time, growth.end)}".strip()
        parts.append(f'<tspan class="{classes}">{escape(span.text, quote=False)}</tspan>')
    # Where nothing moves, what was replaced is not shown.
    gone = "" if growth.end is None else ' class="x"'
    return f'<text{gone} y="{(growth.y + 1) * HEIGHT - BASELINE}">{"".join(parts)}</text>'


def scrolling(frames: list[Frame], times: Times) -> str:
    steps = [next(group) for _, group in groupby(frames, lambda frame: frame.n_above)]
    stops = "".join(f"{times.percent(frame.time)}{{transform:translateY({-HEIGHT * frame.n_above}px)}}" for frame in steps[1:])
    last = -HEIGHT * frames[-1].n_above
    return f"@keyframes scroll{{0%{{transform:none}}{stops}}}\n#all{{transform:translateY({last}px);animation:scroll {times.length:.1f}s step-end infinite}}"


def draw(frames: list[Frame], n_columns: int, n_rows: int) -> str:
    times = Times(frames[-1].time + REST)
    text = "\n".join(line(growth, times) for growth in growths(frames))
    width, height = round(n_columns * WIDTH) + 2 * MARGIN, n_rows * HEIGHT + 2 * MARGIN
    colours = "".join(f".{name}{{fill:{colour}}}" for name, colour in COLOURS.items())
    still = "@media (prefers-reduced-motion:reduce){*{animation:none!important}.x{display:none}}"
    style = f"{STYLE}{colours}\n{times.style()}\n{scrolling(frames, times)}\n{still}"
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img" aria-label="A session at a terminal">
<style>
{style}
</style>
<svg x="{MARGIN}" y="{MARGIN - 4}" width="{width - 2 * MARGIN}" height="{n_rows * HEIGHT + 8}"><g id="all">
{text}
</g></svg>
</svg>
"""
