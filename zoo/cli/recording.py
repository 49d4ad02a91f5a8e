"""What `--record` keeps of a run that is interrupted or ended: all that was seen until then. It may have taken an hour."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from zoo.shipped.evidence import Evidence


@contextmanager
def kept(evidence: Evidence | None, err: bool = False) -> Iterator[None]:
    """Writes the evidence when what is inside ends, in whichever way, and says where to (`err`: on stderr)."""
    from zoo.cli.system import ended_in_order, undisturbed
    from zoo.cli.text import fact

    try:
        with ended_in_order():
            yield
    finally:
        if evidence is not None:
            with undisturbed():
                evidence.write()
            click.echo(fact("recorded", str(evidence.path)), err=err)
