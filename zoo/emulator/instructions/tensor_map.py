"""tensormap: changing a tensor map in memory, and handing the change to the tensor copies."""

import numpy as np

from zoo.contract.tensor_map import BYTES
from zoo.errors import ArgumentError

from .. import memory
from ..lanes import first_lane
from ..memory import GLOBAL_BASE, SHARED_BASE
from ..tensor_map_edits import replaced
from . import instruction
from .tma import read_map

_OF_AXES = ("box_dim", "global_dim", "global_stride", "element_stride")
_LITERAL = ("elemtype", "interleave_layout", "swizzle_mode", "swizzle_atomicity", "fill_mode")
_PIECES = np.arange(0, BYTES, 16, dtype=np.int64)


@instruction("tensormap.replace")
def replace_field(ins):
    """One field of a map in global or shared memory gets a new value"""
    ins.flag("tile") or ins.unsupported("it needs .tile")
    field = ins.choice("global_address", "rank", *_OF_AXES, *_LITERAL)
    space = ins.choice("global", "shared::cta", default="generic")
    ins.flag("b1024") or ins.unsupported("it needs .b1024")
    type = ins.type()
    if type != ("b64" if field in ("global_address", "global_stride") else "b32"):
        ins.unsupported(f"{field} is not .{type}")
    where = ins.address(0)
    ordinal = None
    if field in _OF_AXES:
        ordinal = getattr(ins.operands[1], "value", None)
        if ordinal is None:
            ins.unsupported("the ordinal must be an immediate")
    position = 2 if field in _OF_AXES else 1
    ins.expect_operands(position + 1)
    if field in _LITERAL and getattr(ins.operands[position], "value", None) is None:
        ins.unsupported(f"the new {field} must be an immediate")
    value = ins.read(position, type)

    def run(warp, lanes):
        for lane in (lane for lane in range(32) if lanes >> lane & 1):
            one(warp, lane)

    def one(warp, lane):
        only, address = 1 << lane, int(where(warp)[lane])
        if space == "shared::cta":
            address = (address & 0xFFFFFFFF) + SHARED_BASE
        if address % 128:
            ins.report(
                warp,
                only,
                "misaligned",
                f"a tensor map that is changed needs 128-byte alignment, its address is {address:#x}",
                address,
            )
            return
        pieces = address + _PIECES
        raw = np.ascontiguousarray(memory.read_generic(ins, warp, only, pieces, 16)).tobytes()
        try:
            edited = replaced(raw, field, ordinal, int(warp.values[value][lane]))
        except (ArgumentError, StopIteration, ValueError) as error:
            ins.report(warp, only, "tensor-map", str(error) or "the 128 bytes are not a logical tensor map", address)
            return
        data = np.frombuffer(edited, np.uint64).reshape(-1, 2)
        memory.write_generic(ins, warp, only, pieces, 16, data)
        if address >= GLOBAL_BASE:
            warp.machine.tensor_map_edits.edit(warp, address, released=False)

    return run


@instruction("tensormap.cp_fenceproxy")
def copy_and_release(ins):
    """A map from shared to global memory, and the release that tensor copies need"""
    for modifier in ("global", "shared::cta", "tensormap::generic", "release", "sync", "aligned"):
        ins.flag(modifier) or ins.unsupported(f"it needs .{modifier}")
    ins.choice("cta", "cluster", "gpu", "sys")
    to, source = ins.address(0), ins.address(1)
    ins.expect_operands(3)
    if getattr(ins.operands[2], "value", None) != BYTES:
        ins.unsupported(f"the size must be {BYTES}")

    def run(warp, lanes):
        lane = first_lane(lanes)
        address, start = int(to(warp)[lane]), int(source(warp)[lane]) & 0xFFFFFFFF
        for operand in (to, source):
            if len(set(operand(warp).tolist())) > 1:
                ins.report(warp, lanes, "divergent-operand", "lanes give different addresses for one copy")
        if address % 128 or start % 128:
            ins.report(
                warp,
                lanes,
                "misaligned",
                f"the maps at {address:#x} and shared {start & 0xFFFFFF:#x} need 128-byte alignment",
                address,
            )
            return
        data = memory.read_shared(ins, warp, 1 << lane, start + _PIECES, 16)
        memory.write_global(ins, warp, 1 << lane, address + _PIECES, 16, data)
        warp.machine.tensor_map_edits.edit(warp, address, released=True)

    return run


@instruction("prefetch.tensormap", "prefetch.param.tensormap", "prefetch.const.tensormap")
def prefetch(ins):
    """No effect on values, but a map must be there"""
    where = ins.address(0)

    def run(warp, lanes):
        for address in {int(where(warp)[lane]) for lane in range(32) if lanes >> lane & 1}:
            read_map(ins, warp, first_lane(lanes), address)

    return run


def proxy_fence(ins):
    """fence.proxy.tensormap::generic, whose modifiers up to there are consumed"""
    kind = ins.choice("acquire", "release")
    ins.choice("cta", "cluster", "gpu", "sys")
    if kind == "release":
        ins.expect_operands(0)
        return lambda warp, lanes: warp.machine.tensor_map_edits.release(warp)
    ins.expect_operands(2)
    where = ins.address(0)
    if getattr(ins.operands[1], "value", None) != BYTES:
        ins.unsupported(f"the size must be {BYTES}")

    def run(warp, lanes):
        for address in {int(where(warp)[lane]) for lane in range(32) if lanes >> lane & 1}:
            warp.machine.tensor_map_edits.acquire(warp, address)

    return run
