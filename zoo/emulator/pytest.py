"""A fixture of pytest. A conftest.py enables it with `pytest_plugins = ["zoo.emulator.pytest"]`.

def test_my_kernel(ptx_check):
    x, y = ptx_check(path_or_text_or_triton_kernel, grid=4, block=128, args=[x, y, 512])
"""

import re
from pathlib import Path

import pytest

from .arguments import of_values
from .check import run
from .device import Module
from .errors import EmulatorError


@pytest.fixture
def ptx_check():
    """ptx_check(kernel, grid, args, block=..., entry=..., shared=..., ...) -> the arrays among args as they are after the launch.

    `kernel` is PTX, a path, or what Triton's compiler returns. The test fails with the causes of all findings."""
    return check


def check(
    kernel, grid, args, block=None, *, entry=None, cluster=None, shared=0, arch=None, schedules=2, seed=0, only=None, strict=False,
    cooperative=False, programmatic=False, jobs=1, stack_bytes=None,
):  # fmt: skip
    scratch = ()
    if hasattr(kernel, "asm"):
        from .triton import launch_of

        kernel, block, cluster, shared, grid, scratch = launch_of(kernel, grid)
    text = Path(kernel).read_text() if isinstance(kernel, Path) or "\n" not in kernel else kernel
    module = Module(text, whole=False)
    names = module.entries
    if entry not in names and not (entry is None and len(names) == 1):
        raise EmulatorError(f"entry= is one of {', '.join(names[:20]) or 'none'}")
    entry = entry or names[0]
    if block is None:
        block = module.functions[entry].directives.get("reqntid")
    if block is None:
        raise EmulatorError("block= is missing")
    result = run(
        module, entry, grid, block, of_values(args), cluster=cluster, shared_bytes=shared, arch=arch, count=schedules, seed=seed, only=only,
        scratch=scratch, cooperative=cooperative, programmatic=programmatic, jobs=jobs, stack_bytes=stack_bytes,
    )  # fmt: skip
    if result.failed(strict):
        wrong = [re.sub(r"--only (\S+)\)", r'only="\1")', sentence) for sentence in result.wrong]
        pytest.fail("\n".join([*map(str, result.causes), *wrong]), pytrace=False)
    return list(result.arrays.values())
