"""One file with a table for each of several groupings.

name = "gemm.fp8b128.{grouping}"         # `{grouping}` in any text is the name of the grouping
options = ["b_constant"]                 # shared by all groupings

[grouping.dense]                         # of one grouping
options = ["batch_invariant", "b_constant"]

[grouping.dense.launch.many_tokens]      # a table is joined with the shared one, key by key; any other value replaces the shared one
grid = ["sms", "1", "1"]

A shared piece or launch that one of the groupings does not use is not part of that grouping's table.
"""

from __future__ import annotations

from typing import Any

from tools.builder import BuildError

_Table = dict[str, Any]


def sections(data: _Table) -> list[_Table]:
    """The tables of a file, which is one table if it has no [grouping]."""
    if "grouping" not in data:
        return [data]
    shared, own = {key: value for key, value in data.items() if key != "grouping"}, data["grouping"]
    if not isinstance(own, dict) or not own or not all(isinstance(one, dict) for one in own.values()):
        raise BuildError(f"'grouping' must be a table of tables, got {own!r}")
    return [_named(_joined(shared, one), name) for name, one in own.items()]


def _joined(shared: _Table, own: _Table) -> _Table:
    both = {
        key: _joined(shared[key], own[key])
        for key in shared.keys() & own.keys()
        if isinstance(shared[key], dict) and isinstance(own[key], dict)
    }
    return {**shared, **own, **both}


def _named(value: Any, grouping: str) -> Any:
    """`value` with the grouping's name for {grouping} in every text."""
    if isinstance(value, str):
        return value.replace("{grouping}", grouping)
    if isinstance(value, list):
        return [_named(one, grouping) for one in value]
    if isinstance(value, dict):
        return {key: _named(one, grouping) for key, one in value.items()}
    return value
