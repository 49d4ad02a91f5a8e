"""The names that somebody who wrote another one may have meant, and how a refusal says so."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

_COUNT = 3
_ALIKE = 0.6  # as difflib measures it: the share of the letters that two words have in common, in order
_LONGEST = 1000  # characters: nothing longer was meant to be a name
_NEARLY = 0.15  # how much less alike than the nearest the others may be


def nearest(written: str, names: Iterable[str]) -> list[str]:
    """At most three of `names`, the nearest first: names that are alike as a whole, else names that hold what was written
    or a word like it (`mxfp4.rows`, `swiglo`). None where nothing is near."""
    if len(written) > _LONGEST:
        return []
    import difflib  # only a refusal pays for it

    by_key = {name.casefold(): name for name in names}
    key = written.casefold().strip("*.")
    found = difflib.get_close_matches(key, by_key, _COUNT, _ALIKE)
    if found:
        best, *others = (difflib.SequenceMatcher(None, name, key).ratio() for name in found)
        found = found[: 1 + sum(other >= best - _NEARLY for other in others)]
    elif key:
        words = sorted({word for name in by_key for word in name.split(".")})
        alike = difflib.get_close_matches(key, words, 1, _ALIKE)
        found = [name for name in by_key if key in name] or [name for name in by_key if {*alike} & {*name.split(".")}]
    return [by_key[name] for name in found[:_COUNT]]


def suggestion(written: str, names: Collection[str], all_of_them: str) -> str:
    """`did you mean one, two or three? `zoo list` shows all 69`: the near names, if any, and how to see them all."""
    found = nearest(written, names)
    if not found or len(found) == len(names):
        return all_of_them
    return f"{_did_you_mean(found)} {all_of_them[:1].upper()}{all_of_them[1:]}"


def afterthought(written: str, names: Collection[str]) -> str:
    """`; did you mean one or two?`, to end a refusal that has named them all; nothing where none is near."""
    found = nearest(written, names)
    return f"; {_did_you_mean(found)}" if found else ""


def _did_you_mean(found: Sequence[str]) -> str:
    return f"did you mean {' or '.join(filter(None, (', '.join(found[:-1]), found[-1])))}?"


def a_few(names: Collection[str]) -> str:
    """The first three, and how many more there are: what a refusal is about, without a page of names."""
    shown = list(names)[:_COUNT]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
