"""A clock's rows on the terminal: a line for each unit and role, time from left to right, and tables of what was busy and what waited."""

from __future__ import annotations

from collections.abc import Sequence

from zoo.cli.text import can_print, count, paragraph, table, width
from zoo.clock.lanes import CAUSES, Row, issue_slots
from zoo.clock.prediction import Prediction

_LETTERS = dict(zip(CAUSES, "#mtsdwxn", strict=True))
_SHADES = (" ", "\u2591", "\u2592", "\u2593", "\u2588"), (" ", ".", ":", "+", "#")


def text(prediction: Prediction, rows: Sequence[Row]) -> str:
    chip, cycles = prediction.chip, prediction.replay.cycles
    labels = max(len(row.name) for row in rows) + 2
    columns = max(width() - labels - 2, 8)
    shades = _SHADES[0] if can_print("".join(_SHADES[0])) else _SHADES[1]
    used = set[str]()
    lines = [f"{'':{labels}}{_axis(cycles / chip.clock, columns)}"]
    for row in rows:
        cells = _busy(row, cycles, columns, shades) if row.unit else _waiting(row, cycles, columns, used, shades[-1])
        lines.append(f"{row.name:{labels}}|{cells}|")
    legend = [f"{shades[-1]} runs"] + [f"{_LETTERS[cause]} waits for {cause}" for cause in CAUSES[1:] if cause in used]
    return "\n".join(
        (
            _head(prediction),
            "",
            *lines,
            "",
            paragraph(
                f"the axis begins with the CTA, after the launch; units: {shades[1]} to {shades[-1]} busy; warps: {', '.join(legend)}",
                hanging=2,
            ),
            "",
            *_tables(prediction, rows),
        )
    )


def _head(prediction: Prediction) -> str:
    call, chip = prediction.call, prediction.chip
    said = "its clock is compared with times of dense GEMMs" if chip.held_to_measured_times else "PREDICTED, held to no GPU"
    lines = [f"{call.kernel.name}, {call.problem}, {call.launch.variant.name}, on {chip.name} ({said})"]
    tiles = f"{count(call.turns, 'tile')} a CTA" + (f", {call.resident} CTAs share a multiprocessor" if call.resident > 1 else "")
    tiles += f", the first of a cluster of {call.cluster}" if call.cluster > 1 else ""
    rest = f", the launch is extrapolated from {' and '.join(map(str, prediction.lengths))} tiles" if len(prediction.lengths) > 1 else ""
    lines.append(f"{_predicted(prediction)}{prediction.microseconds:.1f} us a launch: {tiles}; {prediction.traced} traced{rest}")
    return "\n".join(paragraph(line, hanging=2) for line in lines)


def _predicted(prediction: Prediction) -> str:
    return "" if prediction.chip.held_to_measured_times else "predicted: "


def _axis(microseconds: float, columns: int) -> str:
    end = f"{microseconds:.1f} us"
    return f" 0{end:>{columns - 1}}"


def _busy(row: Row, cycles: float, columns: int, shades: Sequence[str]) -> str:
    shares = [0.0] * columns
    for span in row.spans:
        for column, share in _spread(span.start, span.end, cycles, columns):
            shares[column] += share
    return "".join(shades[0 if share < 0.02 else min(1 + int(share * 4), 4)] for share in shares)


def _waiting(row: Row, cycles: float, columns: int, used: set[str], running: str) -> str:
    """What the warp does for most of each column."""
    cells: list[dict[str, float]] = [{} for _ in range(columns)]
    for span in row.spans:
        for column, share in _spread(span.start, span.end, cycles, columns):
            cells[column][span.what] = cells[column].get(span.what, 0.0) + share
    most = [max(cell, key=lambda what: cell[what]) if sum(cell.values()) > 0.25 else None for cell in cells]
    used.update(what for what in most if what is not None)
    return "".join(" " if what is None else running if what == CAUSES[0] else _LETTERS[what] for what in most)


def _spread(start: float, end: float, cycles: float, columns: int) -> list[tuple[int, float]]:
    """The columns that a span covers, and the share of each."""
    low, high = start / cycles * columns, end / cycles * columns
    return [(column, min(high, column + 1) - max(low, column)) for column in range(int(low), min(int(high) + 1, columns))]


def _tables(prediction: Prediction, rows: Sequence[Row]) -> list[str]:
    clock, cycles = prediction.chip.clock, prediction.replay.cycles
    word = _predicted(prediction)
    busy = [(row.name, row.busy) for row in rows if row.unit] + [("issue slots", issue_slots(prediction))]
    units = [(name, f"{time / clock:.2f}", f"{time / cycles:.0%}") for name, time in busy]
    warps = []
    for row in (one for one in rows if not one.unit):
        waits = sorted(((row.total(cause), cause) for cause in CAUSES[1:]), reverse=True)
        words = ", ".join(f"{cause} {time / clock:.2f}" for time, cause in waits if time >= cycles / 100)
        warps.append((row.name, f"{row.busy / clock:.2f}", words or "nothing"))
    return [
        table((f"{word}unit", "busy us", "share"), units),
        "",
        table((f"{word}warps", "run us", "wait for, us"), warps),
        "",
        paragraph(word + _most(busy, cycles)),
    ]


def _most(busy: Sequence[tuple[str, float]], cycles: float) -> str:
    name, time = max(busy, key=lambda one: one[1])
    return f"the busiest unit is {name}, {time / cycles:.0%} of the traced time"
