"""Where a layer's time goes, as text and as SVG: a bar for each kernel and each gap, at its place in the step."""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

from zoo.benchmark.layer_steps import Seen
from zoo.benchmark.trace import Bar, length, merged, of_gaps, of_kernels, short_name
from zoo.cli.text import can_print, count, cut, paragraph, width

_SHORTEST = 0.005  # of the longest step: shorter neighbours share a bar
_NUMBERS = 17  # characters of microseconds and share
_SVG_WIDTH, _LEFT, _LANE, _GAP_BETWEEN, _LINE = 1100, 20, 34, 30, 18
_COLOURS = ("#0b6e4f", "#c44900", "#33658a", "#8250df", "#a36b00", "#5b7f2b", "#a4303f", "#2b7f7f", "#6b5b95", "#7f6f5b")
_OF_GAPS = "#d0d0d0"


def as_text(title: str, seen: Sequence[Seen]) -> str:
    """A block for each library, all to one scale."""
    scale = max((length(one.bars) for one in seen), default=0.0)
    drawn = {one.name: [(short_name(bar.name), bar) for bar in merged(one.bars, _SHORTEST * scale)] for one in seen}
    longest = max((len(name) for bars in drawn.values() for name, _ in bars), default=0)
    return "\n\n".join([paragraph(title), *(_block(one, drawn[one.name], scale, min(longest, width() // 3)) for one in seen)])


def _block(one: Seen, names: Sequence[tuple[str, Bar]], scale: float, for_names: int) -> str:
    area = width() - for_names - _NUMBERS - 2
    full = can_print("█░")
    whole = length(one.bars)
    lines = [paragraph(_head(one))]
    for name, bar in names:
        begin = round(bar.start / scale * area)
        cells = max(round((bar.start + bar.duration) / scale * area) - begin, 1)
        mark = (("░" if bar.is_gap else "█") if full else ("." if bar.is_gap else "#")) * cells
        drawn = " " * min(begin, area - 1) + mark[: area - min(begin, area - 1)]
        lines.append(f"{bar.duration:>9.1f}{bar.duration / whole:>7.1%} {cut(name, for_names):<{for_names}}  {drawn}".rstrip())
    return "\n".join(lines)


def _head(one: Seen) -> str:
    how = "in a CUDA graph" if one.in_graph else "between events, since no CUDA graph can hold it"
    kernels = sum(not bar.is_gap for bar in one.bars)
    sums = f"{count(kernels, 'kernel')} {of_kernels(one.bars):,.1f} us, gaps {of_gaps(one.bars):,.1f} us"
    if not kernels:
        sums = "nothing, because torch's profiler saw no kernel"
    return f"{one.name}: {one.microseconds:,.1f} us {how}; traced: {sums}"


def as_svg(title: str, seen: Sequence[Seen]) -> str:
    """A lane for each library, all to one scale; below each its longest kernels. Each bar's tooltip has its whole name."""
    scale = max((length(one.bars) for one in seen), default=0.0) or 1.0
    area, out, y = _SVG_WIDTH - 2 * _LEFT, list[str](), 50
    for one in seen:
        sums: dict[str, float] = {}
        for bar in one.bars:
            if not bar.is_gap:
                sums[short_name(bar.name)] = sums.get(short_name(bar.name), 0.0) + bar.duration
        longest = sorted(sums, key=lambda name: -sums[name])
        colours = {name: _COLOURS[place % len(_COLOURS)] for place, name in enumerate(longest)}
        out.append(_text(_LEFT, y, _head(one)))
        for bar in one.bars:
            name = short_name(bar.name)
            x, wide = _LEFT + bar.start / scale * area, max(bar.duration / scale * area, 0.3)
            colour = _OF_GAPS if bar.is_gap else colours[name]
            words = escape(f"{bar.name}: {bar.duration:.1f} us, from {bar.start:.1f} us on")
            out.append(
                f'<rect x="{x:.2f}" y="{y + 8}" width="{wide:.2f}" height="{_LANE}" fill="{colour}"'
                f' stroke="white" stroke-width="0.3"><title>{words}</title></rect>'
            )
        y += 8 + _LANE + _LINE
        for name in longest[: len(_COLOURS)]:
            out.append(f'<rect x="{_LEFT}" y="{y - 10}" width="12" height="12" fill="{colours[name]}"/>')
            out.append(_text(_LEFT + 20, y, f"{sums[name]:,.1f} us  {name}"))
            y += _LINE
        y += _GAP_BETWEEN
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{_SVG_WIDTH}" height="{y}" font-family="sans-serif" font-size="13">'
    return "\n".join([head, f'<rect width="{_SVG_WIDTH}" height="{y}" fill="white"/>', _text(_LEFT, 24, title, 16), *out, "</svg>", ""])


def _text(x: float, y: float, words: str, size: int = 13) -> str:
    return f'<text x="{x}" y="{y}" font-size="{size}">{escape(words)}</text>'
