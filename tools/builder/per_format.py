"""One table for several formats, read as a table for each.

name = "quantize.{format}.rows"          # {format} is the key, {BLOCK} a word of [formats.<key>]

[formats.mxfp8]
BLOCK = 32
elements = ["e4m3", "e5m2"]

[[arguments]]
name = "q"
dtypes = "{elements}"                    # a string that is nothing but a word is what the word is
shape = ["M", "ceil_div(K, {BLOCK})"]

[options.rounding]
only = ["mxfp8", "mxfp4"]                # in any table: left out for the other formats
"""

from __future__ import annotations

import re

from tools.builder import BuildError

_WORD = re.compile(r"\{(\w+)\}")
_ABSENT = object()


def instances(data: dict) -> list[dict]:
    """The tables that a file stands for; itself, where it names no formats."""
    if "formats" not in data:
        return [data]
    formats = data["formats"]
    if not isinstance(formats, dict) or not formats or not all(isinstance(words, dict) for words in formats.values()):
        raise BuildError(f"'formats' must hold a table of words for each format, got {formats!r}")
    rest = {key: value for key, value in data.items() if key != "formats"}
    made = [_Instance(name, words, tuple(formats)) for name, words in formats.items()]
    return [one.read(rest) for one in made]


class _Instance:
    def __init__(self, format: str, words: dict, formats: tuple[str, ...]):
        self.format, self.words, self.formats = format, {**words, "format": format}, formats
        self.used = {"format"}

    def read(self, data: dict) -> dict:
        made = self._value(data)
        unused = sorted(self.words.keys() - self.used)
        if unused:
            raise BuildError(f"formats.{self.format}: nothing reads '{unused[0]}'; remove it")
        return made

    def _value(self, value):
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, list):
            return [made for made in map(self._value, value) if made is not _ABSENT]
        if isinstance(value, dict):
            if not self._is_meant(value.get("only", list(self.formats))):
                return _ABSENT
            made = {key: self._value(inner) for key, inner in value.items() if key != "only"}
            return {key: inner for key, inner in made.items() if inner is not _ABSENT}
        return value

    def _is_meant(self, only) -> bool:
        if not isinstance(only, list) or not only or any(name not in self.formats for name in only):
            raise BuildError(f"'only' must list some of {', '.join(self.formats)}, got {only!r}")
        return self.format in only

    def _text(self, text: str):
        whole = _WORD.fullmatch(text)
        return self._word(whole) if whole else _WORD.sub(lambda found: str(self._word(found)), text)

    def _word(self, found: re.Match):
        name = found[1]
        if name not in self.words:
            raise BuildError(f"'{found[0]}': formats.{self.format} has no such word; it has {', '.join(sorted(self.words))}")
        self.used.add(name)
        return self.words[name]
