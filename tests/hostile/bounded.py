"""Runs a piece of Python in a process that may use little memory and little time: what costs more ends in an error."""

import subprocess
import sys
import textwrap

from tests.recorder import ROOT

_LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, ({bytes}, {bytes}))
resource.setrlimit(resource.RLIMIT_CPU, ({seconds}, {seconds} + 1))
sys.setrecursionlimit(1000)
"""


def bounded(code: str, *arguments: object, megabytes: int = 900, seconds: int = 10) -> str:
    """What `code` prints. numpy alone maps some 500 MB of addresses, of which it uses few."""
    whole = _LIMITED.format(bytes=megabytes << 20, seconds=seconds) + textwrap.dedent(code)
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "OPENBLAS_NUM_THREADS": "1"}
    ran = subprocess.run(
        [sys.executable, "-c", whole, *map(str, arguments)], capture_output=True, text=True, env=environment, timeout=10 * seconds
    )
    assert ran.returncode == 0, f"ended with {ran.returncode}: {ran.stderr[-2000:]}"
    return ran.stdout
