"""Cubins with something wrong in them, byte by byte and section by section: IntegrityError, or read."""

import random
from dataclasses import replace
from pathlib import Path

from tests.fuzz.campaign import fuzz
from tests.fuzz.mutations import mutated_bytes, number
from tests.hostile.elf import Section, cubin_of, sections_of
from zoo.errors import IntegrityError
from zoo.shipped.cubin_file import read_cubin

_ROOT = Path(__file__).resolve().parents[1] / "zoo_cubins"
CUBINS = [path.read_bytes() for path in sorted(_ROOT.glob("*/*.cubin"))]


def a_mutant_cubin_is_refused_or_read(pick: random.Random) -> str:
    whole = pick.choice(CUBINS)
    if pick.random() < 0.5:
        data = mutated_bytes(pick, whole, pick.choice((1, 1, 2, 8)))
    else:
        data = cubin_of(_mutated_sections(pick, sections_of(whole)), whole, share=pick.random() < 0.2)
        if pick.random() < 0.2:
            data = mutated_bytes(pick, data, 1)
    try:
        read_cubin(data)
    except IntegrityError as error:
        said = str(error)
    else:
        return "read"
    assert said.startswith("malformed cubin: at offset 0x") and len(said) < 2000 and said.isprintable(), said
    return "refused"


def _mutated_sections(pick: random.Random, sections: list[Section]) -> list[Section]:
    """What the reader looks at is changed oftener than code."""
    sections = list(sections)
    for _ in range(pick.choice((1, 1, 2, 4))):
        known = [index for index, one in enumerate(sections) if b"nv." in one.name or b"tab" in one.name or b"note" in one.name]
        at, kind = pick.choice(known or range(len(sections))), pick.randrange(7)
        section = sections[at]
        if kind < 3:
            sections[at] = replace(section, data=mutated_bytes(pick, section.data, pick.choice((1, 2, 8))))
        elif kind == 3:
            sections[at] = replace(section, name=mutated_bytes(pick, section.name, 1).replace(b"\0", b""))
        elif kind == 4:
            sections[at] = replace(section, type=number(pick) % (1 << 32))
        elif kind == 5:
            sections.insert(at, section)
        elif len(sections) > 1:
            del sections[at]
    return sections


def test_mutated_cubins():
    ends = fuzz(a_mutant_cubin_is_refused_or_read, 400)
    assert ends["refused"]
