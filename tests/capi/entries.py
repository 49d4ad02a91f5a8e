"""Small manifest entries for the C library's own tests."""

from __future__ import annotations

import random

from tests.contract.entries import signature_of
from zoo.contract.tensor_map import DTYPES as MAP_DTYPES
from zoo.contract.tensor_map import L2_PROMOTIONS, OUT_OF_BOUNDS_FILLS, SWIZZLES


def _array(name: str, dtype: str, shape: list[str], access: str, **changes) -> dict:
    made = {
        "name": name,
        "kind": "array",
        "dtypes": [dtype],
        "compiled": True,
        "access": access,
        "alignment": 16,
        "optional": False,
        "default": None,
    }
    return {**made, "help": f"the {name}", "forms": [{"when": "1", "shape": shape, "strides": None}], **changes}


def _scalar(name: str, dtype: str, default: int | None = None) -> dict:
    made = {
        "name": name,
        "kind": "scalar",
        "dtypes": [dtype],
        "compiled": True,
        "access": "read",
        "alignment": 8,
        "optional": False,
        "default": default,
    }
    return {**made, "help": f"the {name}", "forms": []}


def _pointer(argument: str, offset: int) -> dict:
    return {"name": argument, "kind": "pointer", "offset": offset, "size": 8, "argument": argument}


def _variant(arch: str, name: str, launch: str, options: dict[str, str]) -> dict:
    return {
        "name": name, "arch": arch, "dtypes": {}, "options": options, "constants": {"THREADS": 128}, "numbers": {}, "tensor": {}, "rates": {}, "launch": launch, "when": "1", "cost": "0",
        "file": f"{arch}/kernel.cubin", "symbol": "kernel", "source_sha256": "0" * 64, "threads": 128, "registers": 32, "static_shared": 0, "shared": 0, "stack": 0,
        "spill_stores": 0, "spill_loads": 0,
    }  # fmt: skip


def _launch(parameters: list[dict], size: int, grid: str = "1") -> dict:
    return {
        "grid": [grid, "1", "1"], "cluster": ["1", "1", "1"], "alone": "0", "programmatic": False,
        "parameters": parameters, "parameter_bytes": size,
    }  # fmt: skip


def _entry(arguments: list[dict], launches: dict[str, dict], variants: list[dict], options: dict[str, dict]) -> dict:
    variants = [one | {"signature": signature_of(launches[one["launch"]])} for one in variants]
    return {
        "summary": "a kernel for the tests of the C library", "promises": {}, "options": options, "arguments": arguments, "derived": [],
        "constraints": [], "launches": launches, "variants": variants, "table": "quantize/test.toml", "source": "quantize/test.cu",
    }  # fmt: skip


def plain_entry(archs: tuple[str, ...] = ("sm_90a", "sm_100f")) -> dict:
    """x and d of (M, K), and a workspace that depends on a scalar."""
    arguments = [
        _array("x", "bf16", ["M", "K"], "read"),
        _array("d", "e4m3", ["M", "K"], "write"),
        _array("scratch", "i32", ["splits * M", "ceil_div(K, 32)"], "workspace"),
        _scalar("splits", "i32", 1),
    ]
    parameters = [_pointer("x", 0), _pointer("d", 8), _pointer("scratch", 16)]
    parameters.append({"name": "size", "kind": "i64", "offset": 24, "size": 8, "value": "M * K"})
    variants = [_variant(arch, "t", "default", {}) for arch in archs]
    return _entry(arguments, {"default": _launch(parameters, 32, "ceil_div(M, 4)")}, variants, {})


def demanding_entry() -> dict:
    """One that takes every step of the driver: a tensor map, a cluster, much shared memory, a dependent launch."""
    made = plain_entry(("sm_90a",))
    recipe = {
        "name": "x", "kind": "tensor_map", "offset": 0, "size": 128, "argument": "x", "dtype": "bf16", "dims": ["K", "M"], "strides": ["2 * K"], "box": ["32", "4"],
        "element_strides": ["1", "1"], "swizzle": "none", "l2_promotion": "none", "fill": "zero",
    }  # fmt: skip
    parameters = [recipe, _pointer("d", 128), _pointer("scratch", 136)]
    made["launches"]["default"] = _launch(parameters, 144, "round_up(M, 2)") | {
        "cluster": ["2", "1", "1"],
        "alone": "M > 64",
        "programmatic": True,
    }
    made["variants"][0] |= {"shared": 100 << 10, "signature": signature_of(made["launches"]["default"])}
    return made


def expression_entry(expressions: list[str]) -> dict:
    """A kernel of three numbers; the option `e` says which expression of them becomes its parameter."""
    values = [f"v{index}" for index in range(len(expressions))]
    launches = {
        value: _launch([{"name": "value", "kind": "i64", "offset": 0, "size": 8, "value": expression}], 8)
        for value, expression in zip(values, expressions, strict=True)
    }
    variants = [_variant("sm_90a", value, value, {"e": value}) for value in values]
    options = {"e": {"values": values, "default": "v0", "compiled": True, "help": "which expression"}}
    return _entry([_scalar(name, "i64") for name in "abc"], launches, variants, options)


MAP_RANK = 3
MAP_NUMBERS = tuple(f"{part}{index}" for part in "dsbe" for index in range(MAP_RANK) if (part, index) != ("s", 0))


def map_entry() -> dict:
    """A tensor map of every type, swizzle and fill, by the option `t`; its extents and strides are the caller's numbers."""
    recipes = [(dtype, swizzle, fill) for dtype in MAP_DTYPES for swizzle in SWIZZLES for fill in OUT_OF_BOUNDS_FILLS]
    launches, variants, names = {}, [], [f"v{index}" for index in range(len(recipes))]
    promotions = list(L2_PROMOTIONS)
    for index, (name, (dtype, swizzle, fill)) in enumerate(zip(names, recipes, strict=True)):
        dims, strides, box, steps = ([symbol for symbol in MAP_NUMBERS if symbol[0] == part] for part in "dsbe")
        parameter = {
            "name": "x", "kind": "tensor_map", "offset": 0, "size": 128, "argument": "x", "dtype": dtype, "dims": dims, "strides": strides, "box": box,
            "element_strides": steps, "swizzle": swizzle, "l2_promotion": promotions[index % len(promotions)], "fill": fill,
        }  # fmt: skip
        launches[name] = _launch([parameter], 128)
        variants.append(_variant("sm_90a", name, name, {"t": name}))
    arguments = [_array("x", "u8", ["N"], "read", alignment=1), *(_scalar(name, "i64") for name in MAP_NUMBERS)]
    return _entry(arguments, launches, variants, {"t": {"values": names, "default": "v0", "compiled": True, "help": "which map"}})


EXTREMES = (0, 1, -1, 2, -2, 3, 7, -7, 32, 128, 2**31, -(2**31), 2**32, 2**62, -(2**62), 2**63 - 1, -(2**63), -(2**63) + 1)


def random_expression(pick: random.Random, depth: int) -> str:
    if depth == 0:
        return pick.choice(("a", "b", "c", "a", "b", "e.v1", "sms", "THREADS", str(abs(pick.choice(EXTREMES[:-2])))))
    one, two, three = (random_expression(pick, depth - pick.choice((1, 1, 2)) if depth > 1 else 0) for _ in range(3))
    kind = pick.randrange(8)
    if kind == 0:
        return f"({one} if {two} else {three})"
    if kind == 1:
        return f"({one} {pick.choice(('and', 'or'))} {two})"
    if kind == 2:
        return f"(not {one})"
    if kind == 3:
        return f"-({one})"
    if kind == 4:
        return f"({one} {pick.choice(('==', '!=', '<', '<=', '>', '>='))} {two})"
    if kind == 5:
        return f"{pick.choice(('min', 'max'))}({one}, {two}, {three})"
    if kind == 6:
        return f"{pick.choice(('ceil_div', 'round_up'))}({one}, {two})"
    return f"({one} {pick.choice(('+', '-', '*', '//', '%'))} {two})"
