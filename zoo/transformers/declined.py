"""One warning for each reason why transformers' own code runs in the place of zoo's."""

from __future__ import annotations

import warnings

_said: set[tuple[str, str]] = set()


def declined(what: str, reason: str) -> None:
    if (what, reason) not in _said:
        _said.add((what, reason))
        warnings.warn(f"zoo.transformers: {what}: {reason}; transformers' own default is used", stacklevel=2)


def forget() -> None:
    """Lets each warning come once more."""
    _said.clear()
