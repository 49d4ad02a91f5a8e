"""The kernels of a manifest as build_cubins.py lays it out, each read from the text when it is asked for.

To read all of them takes longer than anything else in a program's first call.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

_BEGIN, _END = '\n "kernels": {', "\n }\n}\n"
_ENTRY = re.compile(r'\n  "([a-z0-9_.]+)": ')  # no text of JSON goes over lines, so this is no part of one
_OTHER = re.compile(r"\n [^ ]")  # what is not of the kernels


class Entries(Mapping[str, object]):
    def __init__(self, text: str):
        self._text = text
        found = list(_ENTRY.finditer(text))
        ends = [one.start() for one in found[1:]] + [len(text)]
        self._places = {one[1]: (one.end(), end) for one, end in zip(found, ends, strict=True)}

    def __getitem__(self, name: str) -> object:
        begin, end = self._places[name]
        return json.loads(self._text[begin:end].rstrip(",\n"))

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def apart(text: str) -> tuple[str, Entries] | None:
    """The manifest without its kernels, and these; None for a text that is laid out in another way."""
    head, _, rest = text.partition(_BEGIN)
    body = rest.removesuffix(_END)
    if body == rest or _OTHER.search(body):
        return None
    return f'{head}\n "kernels": {{}}\n}}', Entries(body)
