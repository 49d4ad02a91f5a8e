"""docs/clients.md has what docs/clients.json has, and a suite that ran again has one line."""

from __future__ import annotations

from dataclasses import replace

from tools.clients.record import Seen, read, write
from tools.documentation.clients import clients_table

ONE = Seen("torchao", "1a2b", "its tests", "H200", 18, 0, {"needs two GPUs | or more": 3})


def test_a_suite_that_ran_again_has_one_line(tmp_path):
    file = tmp_path / "clients.json"
    assert read(file) == []
    again, elsewhere = replace(ONE, version="3c4d", failed=1), replace(ONE, device="CPU")
    for one in (ONE, elsewhere, again):
        write(one, file)
    assert read(file) == [elsewhere, again]


def test_a_line_has_counts_and_reasons():
    assert clients_table([]) == "Nothing is recorded."
    *_, line = clients_table([ONE]).splitlines()
    assert line == "| torchao 1a2b | its tests | H200 | 18 | 0 | 3: needs two GPUs \\| or more |"
