"""A plot as an SVG file, which any browser shows."""

from __future__ import annotations

from xml.sax.saxutils import escape

from zoo.benchmark.plot import Plot

_WIDTH, _HEIGHT, _LEFT, _TOP, _RIGHT, _BOTTOM = 760, 480, 70, 50, 20, 60
_LINE_HEIGHT = 18
_COLOURS = ("#0b6e4f", "#c44900", "#33658a")  # told apart by those who see few colours; markers differ, too


def as_svg(plot: Plot) -> str:
    below = [*(series.name for series in plot.series), *([plot.line_name] if plot.line else ()), *plot.notes]
    height = _HEIGHT + _LINE_HEIGHT * len(below)

    def x(value: float) -> float:
        return round(_LEFT + plot.x.place(value) * (_WIDTH - _LEFT - _RIGHT), 1)

    def y(value: float) -> float:
        return round(_HEIGHT - _BOTTOM - plot.y.place(value) * (_HEIGHT - _BOTTOM - _TOP), 1)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" font-family="sans-serif" font-size="13">',
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
        _text(_LEFT, 24, plot.title, size=16),
        _text(_LEFT, _TOP - 8, plot.y.label),
        _text(_WIDTH - _RIGHT, _HEIGHT - _BOTTOM + 36, plot.x.label, anchor="end"),
    ]
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    for tick in plot.x.ticks():
        out.append(f'<line x1="{x(tick)}" y1="{_TOP}" x2="{x(tick)}" y2="{bottom}" stroke="#dddddd"/>')
        out.append(_text(x(tick), bottom + 18, f"{tick:g}", anchor="middle"))
    for tick in plot.y.ticks():
        out.append(f'<line x1="{_LEFT}" y1="{y(tick)}" x2="{right}" y2="{y(tick)}" stroke="#dddddd"/>')
        out.append(_text(_LEFT - 8, y(tick) + 4, f"{tick:g}", anchor="end"))
    out.append(f'<path d="M{_LEFT} {_TOP} V{bottom} H{right}" fill="none" stroke="black"/>')
    if plot.line:
        points = " ".join(f"{x(one)},{y(other)}" for one, other in plot.line)
        out.append(f'<polyline points="{points}" fill="none" stroke="black" stroke-dasharray="6 4"/>')
    for index, series in enumerate(plot.series):
        out += [_marker(index, x(one), y(other), f"{one:.4g} {plot.x.label}, {other:.4g} {plot.y.label}") for one, other in series.points]
    for row, words in enumerate(below):
        at = _HEIGHT + row * _LINE_HEIGHT
        if row < len(plot.series):
            out.append(_marker(row, _LEFT + 8, at - 4, words))
        elif plot.line and row == len(plot.series):
            out.append(f'<line x1="{_LEFT}" y1="{at - 4}" x2="{_LEFT + 16}" y2="{at - 4}" stroke="black" stroke-dasharray="6 4"/>')
        out.append(_text(_LEFT + 24, at, words))
    return "\n".join([*out, "</svg>", ""])


def _marker(index: int, x: float, y: float, words: str) -> str:
    """A disc, a cross, a square: with what it stands for as its tooltip."""
    colour, title = _COLOURS[index % len(_COLOURS)], f"<title>{escape(words)}</title>"
    if index % 3 == 0:
        return f'<circle cx="{x}" cy="{y}" r="4" fill="{colour}">{title}</circle>'
    if index % 3 == 1:
        return f'<path d="M{x - 4:g} {y - 4:g} l8 8 m0 -8 l-8 8" fill="none" stroke="{colour}" stroke-width="2">{title}</path>'
    return f'<rect x="{x - 3.5:g}" y="{y - 3.5:g}" width="7" height="7" fill="{colour}">{title}</rect>'


def _text(x: float, y: float, words: str, anchor: str = "start", size: int = 13) -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-size="{size}">{escape(words)}</text>'
