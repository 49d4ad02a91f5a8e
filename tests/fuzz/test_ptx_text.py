"""PTX with something wrong in it: refused by the emulator in its own words, or run, whatever it then finds."""

import functools
import random
import re

from tests.fuzz.campaign import fuzz
from tests.fuzz.mutations import mutated_tokens
from zoo.emulator import Device, EmulatorError, Module
from zoo.shipped import ptx
from zoo.shipped.places import cubins_directory

_TOKEN = re.compile(r"[\w$%.:]+|\s+|.", re.DOTALL)
_EXTRA = """.reg .b32 .b64 .pred .shared .local .param .global .const .align .entry .func .version .target .extern .visible .loc .section .pragma
    .alias .branchtargets .attribute .ptr .v4 { } ( ) [ ] < > , ; : | ! @ - + _ = %tid.x %clock64 WARP_SZ 0f7fc00000 0d7ff8000000000000 0x8000000000000000 1.5
    %r<4294967295> bra brx.idx call ret exit trap bar.sync mbarrier.try_wait.parity.shared.b64 ld.global.u32 st.shared.v4.b32 mov.u32 generic mask"""


@functools.cache
def _texts() -> list[list[str]]:
    """The shortest text of each kernel, in tokens with the space between them."""
    shortest: dict[str, bytes] = {}
    for name, text in ptx.read(cubins_directory() / ptx.FILE).items():
        kernel = name.partition("__")[0]
        if len(text) < len(shortest.get(kernel, b" " * 120_000)):
            shortest[kernel] = text
    return [_TOKEN.findall(text.decode()) for text in shortest.values()]


@functools.cache
def _words() -> list[str]:
    return sorted({token for text in _texts() for token in text if not token.isspace()} | set(_EXTRA.split()))


def _excerpt(pick: random.Random, tokens: list[str]) -> list[str]:
    """Head and end of the body: few instructions, so that an attempt is short."""
    if pick.random() < 0.2:
        return tokens
    lines = "".join(tokens).splitlines(keepends=True)
    body = next(index for index, line in enumerate(lines) if line.startswith("{")) + 1
    registers = [line for line in lines[body:] if line.lstrip().startswith((".reg", ".shared", ".local", ".param"))]
    start = pick.randrange(body, len(lines))
    chosen = [line for line in lines[start : start + pick.randrange(5, 80)] if not line.lstrip().startswith((".reg", "}"))]
    return _TOKEN.findall("".join([*lines[:body], *registers, *chosen, "ret;\n}\n"]))


def mutated_ptx(pick: random.Random) -> str:
    tokens = mutated_tokens(pick, _excerpt(pick, pick.choice(_texts())), _words(), pick.choice((1, 1, 1, 2, 3, 8)))
    return "".join(tokens)


def a_mutant_is_refused_in_words_or_runs(pick: random.Random) -> str:
    text = mutated_ptx(pick)
    try:
        module = Module(text)
        arch = module.target if module.target[-1] in "af" else "sm_90a"
        device = Device(arch="sm_100a" if arch == "sm_100f" else arch, scheduling="random", seed=1, instruction_limit=3000)
        for entry in module.entries[:2]:
            program = module.program(entry)
            block = program.entry.directives.get("reqntid") or [pick.choice((1, 32, 128))]
            buffer = device.alloc(1 << 16)
            block_bytes = (buffer.to_bytes(8, "little") * (program.parameter_bytes // 8 + 1))[: program.parameter_bytes]
            report = device.launch(module, entry, (1, 1, 1), tuple(block), params=block_bytes, shared_bytes=pick.choice((0, 4096)))
            return "ran" if report.ok else "findings"
        return "no entry"
    except EmulatorError as error:
        kind, said = type(error).__name__, str(error)
    assert len(said) < 10_000
    return kind


def test_mutated_ptx():
    fuzz(a_mutant_is_refused_in_words_or_runs, 60)
