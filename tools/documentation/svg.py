"""Parts of the pictures in the documentation: colours of both themes, lines, bands, markers and words as SVG."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

Place = tuple[float, float]


@dataclass(frozen=True)
class Colours:
    text: str
    quiet: str
    grid: str
    zoo: str
    rivals: tuple[str, ...]


THEMES = {
    "light": Colours(text="#1f2328", quiet="#59636e", grid="#d1d9e0", zoo="#0969da", rivals=("#bc4c00", "#8250df", "#1a7f37")),
    "dark": Colours(text="#f0f6fc", quiet="#9198a1", grid="#3d444d", zoo="#4493f8", rivals=("#f0883e", "#ab7df8", "#3fb950")),
}


def band(low: Sequence[Place], high: Sequence[Place], colour: str) -> str:
    """The area between two lines."""
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in [*low, *reversed(high)])
    return f'<polygon points="{points}" fill="{colour}" opacity="0.2"/>'


def drawing(width: int, height: int, title: str, parts: Iterable[str]) -> str:
    font = "font:13px -apple-system,'Segoe UI','Noto Sans',Helvetica,Arial,sans-serif"
    style = f"text{{{font}}}.title{{font-size:14px;font-weight:600}}.small{{font-size:12px}}"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">',
        f"<title>{escape(title)}</title><style>{style}</style>",
        *parts,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def stroke(places: Sequence[tuple[float, float]], colour: str, width: float, dash: str) -> str:
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="{width}"{dashes}/>'


def sign(kind: str, x: float, y: float, colour: str, opacity: float = 1) -> str:
    faint = "" if opacity == 1 else f' opacity="{opacity}"'
    if kind == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"{faint}/>'
    corners = {
        "square": ((-3.5, -3.5), (3.5, -3.5), (3.5, 3.5), (-3.5, 3.5)),
        "triangle": ((0, -4.5), (4.5, 3.5), (-4.5, 3.5)),
        "diamond": ((0, -5), (5, 0), (0, 5), (-5, 0)),
    }[kind]
    points = " ".join(f"{x + across:.1f},{y + down:.1f}" for across, down in corners)
    return f'<polygon points="{points}" fill="{colour}"{faint}/>'


def text(x: float, y: float, words: str, colour: str, anchor: str = "start", style: str = "") -> str:
    named = f' class="{style}"' if style else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}"{named}>{escape(words)}</text>'
