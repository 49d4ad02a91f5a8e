"""Warnings, each of which is given once."""

from __future__ import annotations

import warnings

DEFAULT = "transformers' own default is used"
_said: set[tuple[str, str]] = set()


def declined(what: str, reason: str) -> None:
    """transformers' own code runs in the place of zoo's."""
    warn_once(what, f"{reason}; {DEFAULT}")


def warn_once(what: str, said: str) -> None:
    if (what, said) not in _said:
        _said.add((what, said))
        warnings.warn(f"zoo.transformers: {what}: {said}", stacklevel=2)


def forget() -> None:
    """Lets each warning come once more."""
    _said.clear()
