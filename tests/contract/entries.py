"""A manifest entry that uses what the recipe language can say; tests change single parts of it."""

import copy

from zoo.contract.names import Vocabulary
from zoo.contract.schema import signature_digest

_ENTRY = {
    "summary": "a kernel for the tests of the contract",
    "promises": {"deterministic": True},
    "options": {"layout": {"values": ["plain", "blocked"], "default": "plain", "compiled": True, "help": ""},
                "order": {"values": ["forward", "backward"], "default": "forward", "compiled": False, "help": ""}},
    "arguments": [
        {"name": "a", "kind": "array", "dtypes": ["e4m3", "e5m2"], "compiled": True, "access": "read", "alignment": 16, "optional": False, "default": None,
         "help": "the left operand", "forms": [{"when": "1", "shape": ["M", "K"], "strides": ["a_stride", "1"]}]},
        {"name": "b", "kind": "array", "dtypes": ["e2m1x2"], "compiled": True, "access": "read", "alignment": 16, "optional": False, "default": None,
         "help": "packed weights", "forms": [{"when": "1", "shape": ["N", "K // 2"], "strides": None}]},
        {"name": "scale", "kind": "array", "dtypes": ["ue8m0"], "compiled": True, "access": "read", "alignment": 1, "optional": False, "default": None, "help": "",
         "forms": [{"when": "layout.plain", "shape": ["M", "K // 32"], "strides": ["scale_stride", "1"]},
                   {"when": "layout.blocked", "shape": ["round_up(M, 128)", "round_up(K // 32, 4)"], "strides": None}]},
        {"name": "c", "kind": "array", "dtypes": ["f32", "bf16"], "compiled": False, "access": "read", "alignment": 4, "optional": True, "default": None, "help": "",
         "forms": [{"when": "1", "shape": ["M", "N"], "strides": ["c_stride", "1"]}]},
        {"name": "d", "kind": "array", "dtypes": ["bf16", "f32"], "compiled": True, "access": "write", "alignment": 16, "optional": False, "default": None, "help": "",
         "forms": [{"when": "1", "shape": ["M", "N"], "strides": ["d_stride", "1"]}]},
        {"name": "alpha", "kind": "scalar", "dtypes": ["f32"], "compiled": True, "access": "read", "alignment": 4, "optional": False, "default": 1.0, "help": "", "forms": []},
        {"name": "splits", "kind": "scalar", "dtypes": ["i32"], "compiled": True, "access": "read", "alignment": 4, "optional": False, "default": 1, "help": "", "forms": []},
        {"name": "scratch", "kind": "array", "dtypes": ["u8"], "compiled": True, "access": "workspace", "alignment": 16, "optional": False, "default": None, "help": "",
         "forms": [{"when": "1", "shape": ["splits * M * N * 4"], "strides": None}]},
    ],
    "derived": [["TILES", "ceil_div(M, 64) * ceil_div(N, 64)"]],
    "constraints": [
        {"expression": "K % 32 == 0", "words": "K must be a multiple of 32"},
        {"expression": "N % 8 == 0 or c.present", "words": "N must be a multiple of 8"},
    ],
    "launches": {
        "default": {
            "grid": ["min(sms, TILES)", "splits", "1"], "cluster": ["CLUSTER", "1", "1"], "alone": "0",
            "programmatic": True, "parameter_bytes": 208,
            "parameters": [
                {"name": "c", "kind": "pointer", "offset": 0, "size": 8, "argument": "c"},
                {"name": "d", "kind": "pointer", "offset": 8, "size": 8, "argument": "d"},
                {"name": "rows", "kind": "i64", "offset": 16, "size": 8, "value": "M"},
                {"name": "step", "kind": "i32", "offset": 24, "size": 4, "value": "d_stride * d.itemsize if order.forward else -M"},
                {"name": "alpha", "kind": "f32", "offset": 28, "size": 4, "argument": "alpha"},
                {"name": "scratch", "kind": "pointer", "offset": 32, "size": 8, "argument": "scratch"},
                {"name": "a", "kind": "tensor_map", "offset": 64, "size": 128, "argument": "a", "dtype": "u8", "dims": ["K", "M"], "strides": ["a_stride"],
                 "box": ["128", "64"], "element_strides": ["1", "1"], "swizzle": "128B", "l2_promotion": "256B", "fill": "zero"},
                {"name": "b", "kind": "pointer", "offset": 192, "size": 8, "argument": "b"},
                {"name": "scale", "kind": "pointer", "offset": 200, "size": 8, "argument": "scale"},
            ],
        }
    },
    "variants": [],
    "table": "gemm/test.toml",
    "source": "gemm/test.cu",
}  # fmt: skip


def signature_of(launch: dict) -> str:
    """The signature of a cubin that takes what the launch passes."""
    return signature_digest((one["kind"], one["name"]) for one in launch["parameters"])


def signed(made: dict) -> dict:
    """The entry, whose cubins take what its launches pass."""
    for variant in made["variants"]:
        variant["signature"] = signature_of(made["launches"][variant["launch"]])
    return made


def entry(name: str = "gemm.mxfp8_mxfp4.dense") -> dict:
    """A fresh copy for a kernel of this name, with the full product of variants on two archs and two tiles."""
    made = {"fields": Vocabulary({}).fields(name), **copy.deepcopy(_ENTRY)}
    for arch in ("sm_90a", "sm_100f"):
        for a in ("e4m3", "e5m2"):
            for d in ("bf16", "f32"):
                for layout in ("plain", "blocked"):
                    for tile, when, cost, threads in (("small", "M <= 64", "M", 128), ("large", "1", "64", 256)):
                        name = f"{a}_{d}_{layout}_{tile}"
                        made["variants"].append(
                            {"name": name, "arch": arch, "dtypes": {"a": a, "d": d}, "options": {"layout": layout},
                             "constants": {"THREADS": threads, "CLUSTER": 2, "STAGES": 4}, "numbers": {}, "tensor": {}, "rates": {}, "launch": "default", "when": when, "cost": cost,
                             "file": f"{arch}/{name}.cubin", "bytes": 1, "sha256": "0" * 64, "source_sha256": "0" * 64, "symbol": f"test__{name}",
                             "signature": signature_of(made["launches"]["default"]), "threads": threads, "registers": 32, "static_shared": 0, "shared": 4096, "stack": 0, "spill_stores": 0, "spill_loads": 0}
                        )  # fmt: skip
    return made
