"""One table for several formats, read as a table for each.

formats = "common/formats"               # a folder: one file a format, its words; or { folder = ..., only = { BLOCK = 32 } }
name = "quantize.{format}.rows"          # {format} is the file's name, {BLOCK} a word

words = [                                # more of them, which may be made of others
    { only = { PER_BYTE = 1 }, LENGTH = "K" },
    { except = { PER_BYTE = 1 }, LENGTH = "K // {PER_BYTE}" },
]

[[arguments]]
name = "q"
dtypes = "{elements}"                    # a string that is nothing but a word is what the word is
shape = ["M", "{LENGTH}"]

[options.rounding]
only = { scale = ["ue8m0", "f32"] }      # in any table: left out for formats whose file has another word there; `except`: for those
"""

from __future__ import annotations

import re
from typing import Any

from tools.builder import BuildError
from tools.builder.documents import Documents, did_you_mean

_WORD = re.compile(r"\{(\w+)\}")
_ABSENT = object()
_Table = dict[str, Any]


def instances(data: _Table, documents: Documents) -> list[_Table]:
    """The tables that a file stands for; itself, where it is for no formats."""
    rest = {key: value for key, value in data.items() if key not in ("formats", "words", "included_words")}
    if "formats" in data:
        return [one.read(rest) for one in formats_of(data, documents)]
    if "words" in data:
        raise BuildError("'words' are for a table of several formats; add 'formats'")
    return [rest]


def formats_of(data: _Table, documents: Documents) -> list[Format]:
    """The formats that a table is for."""
    asked = data["formats"]
    asked = {"folder": asked} if isinstance(asked, str) else asked
    if not isinstance(asked, dict) or not isinstance(asked.get("folder"), str) or not asked.keys() <= {"folder", "only", "except"}:
        raise BuildError(f"'formats' must be a folder or {{ folder = ..., only = ... }}, got {asked!r}")
    folder = documents.folder(asked["folder"])
    if not folder:
        raise BuildError(f"formats: no file {asked['folder']}/*.toml below {' or '.join(map(str, documents.roots))}")
    own, included = data.get("words", []), data.get("included_words", [])
    if not isinstance(own, list) or not all(isinstance(case, dict) for case in own):
        raise BuildError(f"'words' must be a list of tables, got {own!r}")
    made = [one for one in (Format(name, asked["folder"], folder) for name in folder) if one.is_meant(asked)]
    if not made:
        raise BuildError(f"formats: none of {', '.join(folder)} is meant")
    for one in made:
        one.add(included, own)
    return made


class Format:
    def __init__(self, name: str, folder: str, formats: dict[str, _Table]) -> None:
        self.name, self.folder, self.formats = name, folder, formats
        self.file = formats[name]
        self.words = {**self.file, "format": name}
        self.own: set[str] = set()  # those of the table itself: somebody must read them
        self.used: set[str] = set()
        self.open: list[str] = []

    def add(self, included: list[_Table], own: list[_Table]) -> None:
        """Words by cases: those that included files have for everybody, but for what the table says in their place."""
        shared, mine = self._meant_words(included), self._meant_words(own)
        self.words |= shared | mine
        self.own = set(mine)

    def _meant_words(self, cases: list[_Table]) -> _Table:
        found: _Table = {}
        for case in filter(self.is_meant, cases):
            for name, value in case.items():
                if name in ("only", "except"):
                    continue
                if name in found or name in self.words:
                    raise BuildError(f"words: '{name}' is there twice for {self.name}")
                found[name] = value
        return found

    def read(self, data: _Table) -> _Table:
        made: _Table = self._value(data)
        if isinstance(made.get("derived"), dict):
            made["derived"] = {name: one["is"] if isinstance(one, dict) else one for name, one in made["derived"].items()}
        unused = sorted(self.own - self.used)
        if unused:
            raise BuildError(f"words: nothing reads '{unused[0]}' for {self.name}; remove it")
        return made

    def is_meant(self, table: _Table) -> bool:
        meant = "only" not in table or self._holds("only", table["only"])
        return meant and ("except" not in table or not self._holds("except", table["except"]))

    def _holds(self, key: str, conditions: Any) -> bool:
        """Whether the words of the format's own file are those. What no file of the folder says is a mistake."""
        if not isinstance(conditions, dict) or not conditions:
            raise BuildError(f"'{key}' must be a table of words and what they are to be, got {conditions!r}")
        holds = True
        for name, wanted in conditions.items():
            said = [words[name] for words in self.formats.values() if name in words]
            if not said:
                near = did_you_mean(name, {word for words in self.formats.values() for word in words})
                raise BuildError(f"'{key}': no file of {self.folder} has a word {name}{near}")
            values = wanted if isinstance(wanted, list) else [wanted]
            for value in values:
                if value not in said:
                    raise BuildError(f"'{key}': {name} is never {value!r} in {self.folder}, only {', '.join(map(repr, said))}")
            holds = holds and self.file.get(name) in values
        return holds

    def _value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [made for made in map(self._value, value) if made is not _ABSENT]
        if isinstance(value, dict):
            if not self.is_meant(value):
                return _ABSENT
            made = {key: self._value(inner) for key, inner in value.items() if key not in ("only", "except")}
            return {key: inner for key, inner in made.items() if inner is not _ABSENT}
        return value

    def text(self, text: str) -> Any:
        """With what its words are."""
        whole = _WORD.fullmatch(text)
        return self._word(whole) if whole else _WORD.sub(lambda found: str(self._word(found)), text)

    def _word(self, found: re.Match[str]) -> Any:
        name = found[1]
        if name not in self.words:
            near = did_you_mean(name, self.words)
            raise BuildError(f"'{found[0]}': {self.name} has no such word{near}; it has {', '.join(sorted(self.words))}")
        if name in self.open:
            raise BuildError(f"words: '{name}' is made of itself: {' -> '.join((*self.open, name))}")
        self.used.add(name)
        self.open.append(name)
        try:
            return self._value(self.words[name])
        finally:
            self.open.pop()
