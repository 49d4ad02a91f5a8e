"""A clock's rows as an SVG file: a bar for each span. Pointing at a bar says what it is and when."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape

from zoo.cli.text import count
from zoo.clock.lanes import CAUSES, Row
from zoo.clock.prediction import Prediction

_WIDTH, _LEFT, _TOP, _HEIGHT, _GAP, _RIGHT = 1100, 130, 70, 18, 8, 20
_COLOURS = dict(zip(CAUSES, ("#0b6e4f", "#33658a", "#c44900", "#86bbd8", "#f6ae2d", "#bbbbbb", "#758e4f", "#7d4e9e"), strict=True))
_LEAST = 0.3  # pixels of a bar: closer spans of one kind are drawn as one


def svg(prediction: Prediction, rows: Sequence[Row]) -> str:
    call, chip, cycles = prediction.call, prediction.chip, prediction.replay.cycles
    bottom = _TOP + len(rows) * (_HEIGHT + _GAP)
    scale = (_WIDTH - _LEFT - _RIGHT) / cycles
    predicted = "" if chip.held_to_measured_times else "PREDICTED, held to no GPU: "
    title = f"{predicted}{call.kernel.name}, {call.launch.variant.name}, on {chip.name}"
    launch = (
        f"{call.problem}: {prediction.microseconds:.1f} us a launch; drawn: {prediction.traced} of {count(call.turns, 'tile')} of a CTA"
    )
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{bottom + 70}" font-family="sans-serif" font-size="13">',
        f'<rect width="{_WIDTH}" height="{bottom + 70}" fill="white"/>',
        f'<text x="10" y="20" font-size="16">{escape(title)}</text>',
        f'<text x="10" y="40">{escape(launch)}</text>',
        f'<text x="{_LEFT}" y="{_TOP - 10}">0</text>',
        f'<text x="{_WIDTH - _RIGHT}" y="{_TOP - 10}" text-anchor="end">{cycles / chip.clock:.2f} us</text>',
    ]
    used = dict[str, None]()
    for number, row in enumerate(rows):
        y = _TOP + number * (_HEIGHT + _GAP)
        out.append(f'<text x="10" y="{y + 14}">{escape(row.name)}</text>')
        out.append(f'<rect x="{_LEFT}" y="{y}" width="{_WIDTH - _LEFT - _RIGHT}" height="{_HEIGHT}" fill="#f2f2f2"/>')
        for start, end, what in _merged(row, _LEAST / scale):
            cause = CAUSES[0] if row.unit else what
            used[cause] = None
            words = f"{what}, {start / chip.clock:.3f} to {end / chip.clock:.3f} us"
            x, size = _LEFT + start * scale, max((end - start) * scale, _LEAST)
            out.append(
                f'<rect x="{x:.1f}" y="{y}" width="{size:.2f}" height="{_HEIGHT}" fill="{_COLOURS[cause]}"><title>{escape(words)}</title></rect>'
            )
    x = _LEFT
    for cause in used:
        words = "busy" if cause == CAUSES[0] else f"waits for {cause}"
        out.append(f'<rect x="{x}" y="{bottom + 20}" width="12" height="12" fill="{_COLOURS[cause]}"/>')
        out.append(f'<text x="{x + 18}" y="{bottom + 31}">{escape(words)}</text>')
        x += 40 + 7 * len(words)
    return "\n".join((*out, "</svg>", ""))


def _merged(row: Row, least: float) -> Iterator[tuple[float, float, str]]:
    """Spans in their order; those that follow each other so closely that no reader would see the gap are one."""
    start = end = 0.0
    what = ""
    for span in row.spans:
        if span.what == what and span.start - end < least:
            end = span.end
            continue
        if what:
            yield start, end, what
        start, end, what = span.start, span.end, span.what
    if what:
        yield start, end, what
