"""A plot as text."""

from __future__ import annotations

from zoo.benchmark.plot import Axis, Plot
from zoo.cli.text import paragraph, width

_ROWS, _LABELS = 20, 8  # of the area; characters for the numbers at its left
_SEVERAL, _LINE = "*", "."


def as_text(plot: Plot) -> str:
    columns = width() - _LABELS - 2
    cells = [[" "] * columns for _ in range(_ROWS)]

    def cell(x: float, y: float) -> tuple[int, int]:
        return _ROWS - 1 - round(plot.y.place(y) * (_ROWS - 1)), round(plot.x.place(x) * (columns - 1))

    for (x, y), (next_x, next_y) in zip(plot.line, plot.line[1:], strict=False):
        (row, column), (next_row, next_column) = cell(x, y), cell(next_x, next_y)
        for at in range(column, next_column + 1):
            share = (at - column) / max(next_column - column, 1)
            cells[round(row + share * (next_row - row))][at] = _LINE
    several = False
    for series in plot.series:
        for point in series.points:
            row, column = cell(*point)
            others = cells[row][column] not in (" ", _LINE, series.marker)
            several |= others
            cells[row][column] = _SEVERAL if others else series.marker

    numbers = {cell(plot.x.low, tick)[0]: _number(tick) for tick in plot.y.ticks()}
    lines = [plot.title, "", plot.y.label]
    lines += [f"{numbers.get(row, ''):>{_LABELS}} |{''.join(found)}".rstrip() for row, found in enumerate(cells)]
    lines += [" " * _LABELS + " +" + "-" * columns, " " * (_LABELS + 2) + _below(plot.x, columns), "", f"{plot.x.label:>{width()}}"]
    lines += [f"{series.marker}  {series.name}" for series in plot.series]
    lines += [f"{_SEVERAL}  several of them"] if several else []
    lines += [paragraph(f"{_LINE}  {plot.line_name}", hanging=3)] if plot.line else []
    lines += [paragraph(note) for note in plot.notes]
    return "\n".join(lines)


def _below(axis: Axis, columns: int) -> str:
    """The numbers under the x axis, each beginning where it belongs; those that would touch another are left out."""
    text = ""
    for tick in axis.ticks():
        at, word = round(axis.place(tick) * (columns - 1)), _number(tick)
        if at >= len(text) + (text != "") and at + len(word) <= columns:
            text = text.ljust(at) + word
    return text


def _number(value: float) -> str:
    return f"{value:g}"
