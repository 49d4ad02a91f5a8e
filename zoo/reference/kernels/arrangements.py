"""The rules of `scales.*` and `pack.*`: bytes that change their places."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from zoo.contract.manifest import Kernel
from zoo.reference.groups import group_sizes
from zoo.reference.kernels.call import Call
from zoo.reference.layouts import from_blocked, to_blocked
from zoo.reference.pack import pack_mxfp4
from zoo.reference.scales import (
    columns_of_groups,
    from_blocked_column_groups,
    from_blocked_row_groups,
    pack_ue8m0,
    to_blocked_column_groups,
    to_blocked_row_groups,
)  # fmt: skip


def rule_of(kernel: Kernel) -> Callable[[Call], None]:
    if kernel.fields["op"] == "pack":
        if kernel.fields.get("arrangement") == "fragments":
            from zoo.reference.kernels import fragments

            return fragments.rule_of(kernel)
        return _pack
    rules = {
        ("blocked", None): lambda call: _blocked(call, to_blocked(call.arrays["scales"])),
        ("blocked", "m_grouped_contiguous"): _block_row_groups,
        ("blocked", "k_grouped"): _block_column_groups,
        ("unblocked", None): lambda call: call.put("scales", from_blocked(call.arrays["blocked"], *call.arrays["scales"].shape)),
        ("unblocked", "m_grouped_contiguous"): _unblock_row_groups,
        ("unblocked", "k_grouped"): _unblock_column_groups,
        ("mn_major", None): lambda call: call.put("transposed", call.arrays["scales"]),
        ("ue8m0_words", None): lambda call: call.put("words", pack_ue8m0(call.arrays["scales"])),
    }
    return rules[kernel.fields["arrangement"], kernel.fields.get("grouping")]


def _pack(call: Call) -> None:
    call.put("packed", pack_mxfp4(call.arrays["q"]))


def _blocked(call: Call, found: np.ndarray) -> None:
    call.put("blocked", found.reshape(call.arrays["blocked"].shape))


def _block_row_groups(call: Call) -> None:
    scales = call.arrays["scales"]
    _blocked(call, to_blocked_row_groups(scales, call.arrays["offsets"], len(scales)))


def _unblock_row_groups(call: Call) -> None:
    scales = call.arrays["scales"]
    call.put("scales", from_blocked_row_groups(call.arrays["blocked"], call.arrays["offsets"], *scales.shape))


def _counts(call: Call) -> np.ndarray:
    """Columns of each group's scales. x's length is not known here, only that offsets do not pass it."""
    return columns_of_groups(group_sizes(call.arrays["offsets"], np.iinfo(np.int32).max), call.settings["block"])


def _block_column_groups(call: Call) -> None:
    counts = _counts(call)
    scales = call.arrays["scales"][:, : counts.sum()]
    _blocked(call, to_blocked_column_groups(scales, counts, call.arrays["blocked"].size))


def _unblock_column_groups(call: Call) -> None:
    blocked = np.ascontiguousarray(call.arrays["blocked"]).reshape(-1)
    call.put("scales", from_blocked_column_groups(blocked, len(call.arrays["scales"]), _counts(call)))
