"""What a translation unit is made of: its text and every file it includes, as one digest.

Comments and the breaks of lines do not count, because no cubin depends on them. So comments may change without a build of the kernels below them.

The scan takes every `#include` at its word, whatever `#if` surrounds it: a rebuild too many is harmless, one too few
is not. Files that no root has belong to the compiler, whose packages are pinned.
"""

from __future__ import annotations

import functools
import hashlib
import re
from pathlib import Path, PurePosixPath

from tools.builder import BuildError

_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*(?:(["<])([^">\n]+)[">]|([^\s].*))', re.MULTILINE)
_LITERAL = rb"""("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])')"""
_COMMENT = re.compile(_LITERAL + rb"|//[^\n]*|/\*.*?\*/", re.DOTALL)
_DIRECTIVE = rb"\s*(?:\A|\n)[ \t]*(#(?:\\.|[^\\\n])*)"  # to the end of its line, or of the last line that a backslash continues
_SPACE = re.compile(_LITERAL + rb"|" + _DIRECTIVE + rb"|\s+", re.DOTALL)
# A text with one of these counts as it is: a line's number may be in its code, or a raw string may look like a comment.
_COUNTS_WHOLE = re.compile(rb'\b(?:__LINE__|__builtin_LINE|source_location|assert)\b|R"')


class Sources:
    """Finds and hashes files below the include roots, the first root first."""

    def __init__(self, roots: list[Path]):
        self.roots = roots
        self._files: dict[str, bytes | None] = {}
        self._includes: dict[str, list[tuple[bool, str]]] = {}

    def digest(self, unit: str) -> str:
        total = hashlib.sha256()
        for name, text in (("", unit.encode()), *sorted(self.files(unit).items())):
            code = without_comments(text)
            total.update(f"{name}\n{len(code)}\n".encode() + code)
        return total.hexdigest()

    def files(self, unit: str) -> dict[str, bytes]:
        """Every file that the unit includes, directly or through others, by its path from a root."""
        found: dict[str, bytes] = {}
        waiting = self._resolve("", self._scan("the generated unit", unit.encode()))
        while waiting:
            name = waiting.pop()
            if name in found:
                continue
            text = self._read(name)
            assert text is not None, "only what is there is waiting"
            found[name] = text
            if name not in self._includes:
                self._includes[name] = self._scan(name, text)
            waiting += self._resolve(name, self._includes[name])
        return found

    def _scan(self, name: str, text: bytes) -> list[tuple[bool, str]]:
        includes = []
        for match in _INCLUDE.finditer(text):
            if match[3]:
                line = text.count(b"\n", 0, match.start()) + 1
                raise BuildError(f"{name}:{line}: #include of a macro; name the file, so that a change of it is seen")
            includes.append((match[1] == b'"', match[2].decode()))
        return includes

    def _resolve(self, includer: str, includes: list[tuple[bool, str]]) -> list[str]:
        names = []
        for quoted, path in includes:
            beside = _normal(PurePosixPath(includer).parent / path)
            candidates = [beside, _normal(PurePosixPath(path))] if quoted else [_normal(PurePosixPath(path))]
            names += [name for name in candidates if name is not None and self._read(name) is not None][:1]
        return names

    def _read(self, name: str) -> bytes | None:
        if name not in self._files:
            path = next((root / name for root in self.roots if (root / name).is_file()), None)
            self._files[name] = path.read_bytes() if path else None
        return self._files[name]


@functools.cache  # many units include the same headers
def without_comments(text: bytes) -> bytes:
    """The text with a space for each comment, and then one space for several spaces and line ends. Literals and directives stay as they are."""
    if _COUNTS_WHOLE.search(text):
        return text
    code = _COMMENT.sub(lambda match: match[1] or b" ", text)
    return _SPACE.sub(lambda match: match[1] or (b"\n" + match[2].rstrip() + b"\n" if match[2] else b" "), code).strip()


def _normal(path: PurePosixPath) -> str | None:
    """`a/../b` as `b`; None for a path outside the roots."""
    parts: list[str] = []
    for part in path.parts:
        if (part == ".." and not parts) or part == "/":
            return None
        if part == "..":
            parts.pop()
        else:
            parts.append(part)
    return "/".join(parts)
