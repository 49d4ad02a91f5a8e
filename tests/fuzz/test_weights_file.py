"""Files of weights with something wrong in them: refused in a sentence, or every tensor comes back and every matrix dequantises or says why not."""

from __future__ import annotations

import functools
import json
import random
import struct
import tempfile
from pathlib import Path

import pytest

from tests.fuzz.campaign import fuzz
from tests.fuzz.mutations import mutated_bytes, mutated_tokens, number
from zoo.errors import ZooError

torch = pytest.importorskip("torch", reason="torch is not installed")
library = pytest.importorskip("safetensors.torch", reason="safetensors is not installed")

_ENDS = (
    ".weight",
    ".weight_packed",
    "_blocks",
    "_scales",
    ".weight_scale",
    ".weight_scale_inv",
    ".weight_scale_2",
    ".weight_global_scale",
    "",
)
_DTYPES = ("U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F4", "F32", "BF16", "I64", "BOOL", "F5")
_WORDS = ['"U8"', '"shape"', '"data_offsets"', '"a.weight"', "null", "[", "]", "{", "}", ",", ":", "-1", "1e9", '"__metadata__"']


@functools.cache
def whole() -> tuple[dict[str, object], bytes]:
    """The header of a file of each format, and its data."""
    import zoo.torch as zt

    x = torch.randn(32, 128, generator=torch.Generator().manual_seed(1))
    weights = {name: zt.quantize(x, name) for name in ("mxfp8", "mxfp4", "nvfp4")}
    weights["fp8b128"] = zt.quantize(x, "fp8b128", direction="squares")
    packed = {"ct.weight_packed": torch.zeros(8, 16, dtype=torch.uint8), "ct.weight_scale": torch.zeros(8, 2).to(torch.float8_e4m3fn)}
    with tempfile.TemporaryDirectory() as folder:
        zt.save(Path(folder, "w"), weights | packed | {"ct.weight_global_scale": torch.ones(1), "norm": torch.ones(4)})
        data = Path(folder, "w").read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def _changed(pick: random.Random) -> bytes:
    header, data = whole()
    kind, text = pick.randrange(4), json.dumps(header)
    if kind == 0:
        return mutated_bytes(pick, struct.pack("<Q", len(text)) + text.encode() + data, pick.choice((1, 2, 8)))
    if kind == 1:
        spaced = functools.reduce(lambda text, sign: text.replace(sign, f" {sign} "), "{}[]:,", text).split()
        text = " ".join(mutated_tokens(pick, spaced, _WORDS, pick.choice((1, 2, 8))))
    else:
        header = json.loads(text)
        for _ in range(pick.choice((1, 1, 2, 4))):
            name = pick.choice(list(header))
            one, change = header[name], pick.randrange(5)
            if change == 0:
                one["dtype"] = pick.choice(_DTYPES)
            elif change == 1 and one["shape"]:
                at = pick.randrange(len(one["shape"]))
                one["shape"] = [
                    *one["shape"][:at],
                    *pick.choice(([number(pick)], [], [1, one["shape"][at]], one["shape"][::-1])),
                    *one["shape"][at + 1 :],
                ]
            elif change == 2:
                one["data_offsets"][pick.randrange(2)] = number(pick)
            elif change == 3:
                other = pick.choice(list(header))
                header[name], header[other] = header[other], header[name]
            else:
                header[pick.choice(("a", "ct", "mxfp8", "norm")) + pick.choice(_ENDS)] = header.pop(name)
        text = json.dumps(header)
    return struct.pack("<Q", len(text)) + text.encode() + data


def a_mutant_file_is_refused_or_every_tensor_comes_back(pick: random.Random) -> str:
    import zoo.torch as zt

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "w")
        path.write_bytes(_changed(pick))
        try:
            loaded = zt.load(path)
        except ZooError as error:
            words = str(error)
        else:
            return _checked(path, loaded)
    assert words.startswith("load: ") and len(words) < 2000, words
    return "refused"


def _checked(path: Path, loaded: dict[str, object]) -> str:
    import zoo.torch as zt

    stored = library.load_file(path)
    kept = {name for name, one in loaded.items() if isinstance(one, torch.Tensor)}
    matrices = {name: one for name, one in loaded.items() if name not in kept}
    assert all(any(name == one or name.startswith((f"{one}.", f"{one}_")) for one in (*kept, *matrices)) for name in stored)
    assert kept <= set(stored) and len(stored) >= len(kept) + 2 * len(matrices)
    for name, one in matrices.items():
        assert one.dequantize().shape == one.shape, name
    try:
        zt.save(path, loaded)
    except ZooError:  # a tensor beside the weights has a name that only another format of them would use
        return "read, and not stored again"
    assert set(zt.load(path)) == set(loaded)
    return "read"


def test_mutated_files_of_weights():
    ends = fuzz(a_mutant_file_is_refused_or_every_tensor_comes_back, 300)
    assert ends["refused"] and ends["read"]
