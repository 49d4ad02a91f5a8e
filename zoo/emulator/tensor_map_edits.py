"""Tensor maps that the kernel itself edits: one field at a time, and whether an edit in global memory has reached the tensor copies.

An edit is made through the generic proxy. The warp that edited releases it (fence.proxy.tensormap::generic.release, or the copy and
fence in one, tensormap.cp_fenceproxy); the warp that uses the map, or one before it, acquires it (the .acquire fence on its address).
"""

from dataclasses import replace

import numpy as np

from zoo.contract.tensor_map import SWIZZLES, TensorMap

# tensormap.replace numbers things in its own way
ELEMENT_TYPES = (
    "u8", "u16", "u32", "i32", "u64", "i64", "f16", "f32", "f32_ftz", "f64", "bf16", "tf32", "tf32_ftz", "u4_align8", "u4_align16", "u6_align16",
)  # fmt: skip
_MODES = ("none", "32B", "64B", "128B")
_ATOMS = ("", "_atom_32B", "_atom_32B_flip_8B", "_atom_64B")
_OF_AXES = {"box_dim": "box", "global_dim": "dims", "global_stride": "strides", "element_stride": "element_strides"}


def replaced(tensor: TensorMap, field: str, ordinal: int | None, value: int) -> TensorMap:
    """The map with one field changed; ValueError says what is wrong with the change."""
    if field == "global_address":
        return replace(tensor, address=value)
    if field == "rank":
        rank = value + 1
        if not 1 <= rank <= 5:
            raise ValueError(f"rank {value} stands for {rank} dimensions; there are 1 to 5")
        more = (1,) * (rank - tensor.rank)
        strides = (tensor.strides + (0,) * len(more))[: rank - 1]
        axes = {name: (getattr(tensor, name) + more)[:rank] for name in ("dims", "box", "element_strides")}
        return replace(tensor, strides=strides, **axes)
    if field in _OF_AXES:
        name = _OF_AXES[field]
        values = list(getattr(tensor, name))
        if ordinal >= len(values):
            raise ValueError(f"{field} {ordinal} of a map of {tensor.rank} dimensions")
        values[ordinal] = value
        return replace(tensor, **{name: tuple(values)})
    if field == "elemtype":
        return replace(tensor, dtype=_chosen(ELEMENT_TYPES, field, value))
    if field == "fill_mode":
        return replace(tensor, fill=_chosen(("zero", "nan"), field, value))
    if field == "interleave_layout":
        _chosen(("none",), field, value)
        return tensor
    mode, _, atom = tensor.swizzle.partition("_")
    if field == "swizzle_mode":
        swizzle = _chosen(_MODES, field, value) + (atom and "_" + atom)
    else:
        swizzle = mode + _chosen(_ATOMS, field, value)
    if swizzle not in SWIZZLES:
        raise ValueError(f"the swizzle {swizzle} does not exist; change mode and atomicity in an order that goes through existing ones")
    return replace(tensor, swizzle=swizzle)


def _chosen(names, field, value):
    if not 0 <= value < len(names):
        raise ValueError(f"{field} {value} is not covered")
    return names[value]


class TensorMapEdits:
    """The edits in global memory of a launch, by the map's address."""

    def __init__(self):
        self._edits = {}

    def edit(self, warp, address, released):
        """`warp` has changed the map; `released`: by an instruction that is a release too."""
        now = int(warp.clocks[0, warp.number])
        self._edits[address] = {"by": warp, "released": now if released else None, "acquired": []}

    def release(self, warp):
        """fence.proxy.tensormap::generic.release: of everything that the warp has edited."""
        for edit in self._edits.values():
            if edit["by"] is warp and edit["released"] is None:
                edit["released"] = int(warp.clocks[0, warp.number])

    def acquire(self, warp, address):
        """fence.proxy.tensormap::generic.acquire on the map."""
        edit = self._edits.get(address)
        if edit is not None and self._knows(warp, edit["by"], edit["released"]):
            edit["acquired"].append((warp, int(warp.clocks[0, warp.number])))

    @staticmethod
    def _knows(warp, other, tick):
        if tick is None:
            return False
        if other.cta.cluster is not warp.cta.cluster:
            return True  # clocks are kept within a cluster
        return bool(np.uint32(tick) <= warp.clocks[0, other.number])

    def check_use(self, ins, warp, lane, address):
        edit = self._edits.get(address)
        if edit is None or any(self._knows(warp, other, tick) for other, tick in edit["acquired"]):
            return
        who = f"warp {edit['by'].index} of CTA {edit['by'].cta.index} changed the tensor map"
        if edit["released"] is None:
            missing = "no fence.proxy.tensormap::generic.release (or tensormap.cp_fenceproxy) by that warp followed"
        else:
            missing = "no fence.proxy.tensormap::generic.acquire on its address lies between that, what orders the two, and this copy"
        ins.report(warp, 1 << lane, "missing-proxy-fence", f"{who}, and {missing}", address)
        edit["acquired"].append((edit["by"], 0))  # one report
