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
DIMENSIONS = 5
_BLANK = TensorMap("u8", 0, (1,), (), (1,))
_RANK = 6  # where the bytes of a map say it
_OF_AXES = {"box_dim": "box", "global_dim": "dims", "global_stride": "strides", "element_stride": "element_strides"}


def replaced(raw: bytes, field: str, ordinal: int | None, value: int) -> bytes:
    """A map's 128 bytes with one field changed; ValueError says what is wrong with the change. A map has room for five dimensions: those
    beyond its rank may be given values, too, before or after the rank grows. 128 zero bytes are a map of rank 0, to which kernels give
    all fields."""
    if not any(raw):
        raw = _with_places(_BLANK, _places(_BLANK.to_bytes()), 0)
    tensor = TensorMap.from_bytes(raw)
    places = _places(raw)
    if field == "rank":
        rank = value + 1
        if not 1 <= rank <= DIMENSIONS:
            raise ValueError(f"rank {value} stands for {rank} dimensions; there are 1 to {DIMENSIONS}")
        for name in ("dims", "box", "element_strides"):
            grown = slice(tensor.rank, rank)
            places[name][grown] = [extent or 1 for extent in places[name][grown]]  # 0: nobody has said it
        return _with_places(tensor, places, rank)
    if field in _OF_AXES:
        values = places[_OF_AXES[field]]
        if ordinal >= len(values):
            raise ValueError(f"{field} {ordinal}: a map has {len(values)}, from 0 on")
        values[ordinal] = value or (2**32 if field == "global_dim" else 0)
        return _with_places(tensor, places, tensor.rank)
    return _with_places(_with_literal(tensor, field, value), places, tensor.rank)


def _places(raw: bytes) -> dict[str, list[int]]:
    """Sizes and strides of all five dimensions; what was never said is 0."""
    rank = raw[_RANK]
    full = TensorMap.from_bytes(raw[:_RANK] + bytes([DIMENSIONS]) + raw[_RANK + 1 :])
    places = {name: list(getattr(full, name)) for name in ("dims", "strides", "box", "element_strides")}
    places["dims"][rank:] = [extent % 2**32 for extent in places["dims"][rank:]]
    return places


def _with_places(tensor: TensorMap, places: dict[str, list[int]], rank: int) -> bytes:
    raw = replace(tensor, **{name: tuple(values) for name, values in places.items()}).to_bytes()
    return raw[:_RANK] + bytes([rank]) + raw[_RANK + 1 :]


def _with_literal(tensor: TensorMap, field: str, value: int) -> TensorMap:
    if field == "global_address":
        return replace(tensor, address=value)
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
