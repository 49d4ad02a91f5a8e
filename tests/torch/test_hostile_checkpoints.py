"""Files of weights that were made to harm, names that collide, and saving that is stopped: each a refusal in a sentence, or the old file."""

from __future__ import annotations

import json
import os
import struct

import pytest
import torch

import zoo
import zoo.torch as zt
from zoo.torch.serving import squares

library = pytest.importorskip("safetensors.torch")


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def byte(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape, dtype=torch.uint8)


def e4m3(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape).to(torch.float8_e4m3fn)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "w.safetensors"


@pytest.fixture(scope="module")
def weights():
    return zt.quantize(normal(128, 256), "mxfp8")


def refused(function, *words: str) -> str:
    with pytest.raises(zoo.ZooError) as caught:
        function()
    found = str(caught.value)
    assert all(word in found for word in words) and len(found) < 900, found
    return found


def test_bytes_of_an_engine_are_not_read_as_scales():
    """e8m0 is a dtype of floats, whose numbers are powers of two. As bytes they would be read as 120, not as 2^-7."""
    refused(lambda: squares(e4m3(128, 256), byte(1, 2)), "scales in torch.uint8")
    if hasattr(torch, "float8_e8m0fnu"):  # torch 2.7
        ones = torch.full((1, 2), 2.0**-7)
        assert torch.equal(squares(e4m3(128, 256), ones.to(torch.float8_e8m0fnu)).scales, ones)


def described(**tensors: tuple[str, list[int], int, int]) -> bytes:
    entries = {name: {"dtype": dtype, "shape": shape, "data_offsets": [start, end]} for name, (dtype, shape, start, end) in tensors.items()}
    return json.dumps(entries).encode()


def file_of(header: bytes, data: bytes = b"", length: int | None = None) -> bytes:
    return struct.pack("<Q", len(header) if length is None else length) + header + data


TWICE = b'{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"a":{"dtype":"I8","shape":[2,2],"data_offsets":[0,4]}}'
FILES = {
    "nothing": b"", "seven bytes": b"abcdefg", "a text": b"not a file of weights at all", "a header past 64 bits": file_of(b"{}", length=2**63),
    "a header past the file": file_of(b"{}", length=10**6), "a header of 99 MB": file_of(b"{}", length=99 * 10**6), "no JSON": file_of(b"{{{"),
    "no UTF-8": file_of(b'{"\xff":1}'), "a deep header": file_of(b'{"a":' + b"[" * 10**5 + b"]" * 10**5 + b"}"), "a list": file_of(b"[]"),
    "tensors on one another": file_of(described(a=("U8", [4], 0, 4), b=("U8", [4], 0, 4)), b"abcd"),
    "tensors past the end": file_of(described(a=("U8", [400], 0, 400)), b"abcd"),
    "bytes of nobody": file_of(described(a=("U8", [2], 0, 2)), b"abcd"),
    "a name that comes twice": file_of(TWICE, b"abcd"),
    "an extent that wraps": file_of(described(a=("U8", [2**40, 2**40], 0, 0))), "an extent below zero": file_of(described(a=("U8", [-1], 0, 0))),
    "offsets that decrease": file_of(described(a=("U8", [4], 4, 0)), b"abcd"), "a dtype of nobody": file_of(described(a=("F5", [4], 0, 4)), b"abcd"),
    "a shape of other bytes": file_of(described(a=("F32", [4], 0, 4)), b"abcd"),
}  # fmt: skip


@pytest.mark.parametrize("what", FILES)
def test_a_crafted_file_is_refused_in_a_sentence(what, path):
    path.write_bytes(FILES[what])
    refused(lambda: zt.load(path), "load: cannot read", str(path))


@pytest.mark.parametrize(("letters", "said"), [(400, "x" * 400), (401, "x" * 400 + "...")])
def test_a_reason_of_the_library_is_cut_after_400_letters(letters, said, path, monkeypatch):
    def refuse(*_, **__):
        raise ValueError("x" * letters)

    path.write_bytes(file_of(b"{}"))
    monkeypatch.setattr(library, "load_file", refuse)
    with pytest.raises(zoo.ArgumentError) as refusal:
        zt.load(path)
    assert str(refusal.value) == f"load: cannot read {path} to cpu: {said}"


def test_a_file_cut_anywhere_is_refused(path, weights):
    zt.save(path, {"up": weights})
    whole = path.read_bytes()
    for length in (0, 7, 8, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        refused(lambda: zt.load(path), str(path))


def test_what_is_no_regular_file_is_refused_unread(tmp_path, weights):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for place in (pipe, tmp_path, "/dev/zero", tmp_path / "none", tmp_path / "none" / "w"):
        refused(lambda place=place: zt.load(place), "load: cannot read")
    for place in (pipe, tmp_path, tmp_path / "none" / "w"):
        refused(lambda place=place: zt.save(place, {"up": weights}), "save: ")
    for place in (None, 3, "a\0b", b"bytes"):
        refused(lambda place=place: zt.load(place), "expected the path of a file")
        refused(lambda place=place: zt.save(place, {"up": weights}), "expected the path of a file")
    assert sorted(os.listdir(tmp_path)) == ["pipe"]


CONTRADICTIONS = {  # what of each is named, and what is said of it
    "scales of fewer rows": (
        {"w.weight": e4m3(128, 64), "w.weight_scale": byte(1, 2)},
        "w.weight_scale: expected (128, 2) beside w.weight of (128, 64), got (1, 2)",
    ),
    "scales of more columns": (
        {"w_blocks": byte(128, 2, 16), "w_scales": byte(128, 4)},
        "w_scales: expected (128, 2) beside w_blocks of (128, 2, 16), got (128, 4)",
    ),
    "blocks of eight bytes": ({"w_blocks": byte(2, 2, 8), "w_scales": byte(2, 2)}, "w_blocks: expected (2, 2, 16), got (2, 2, 8)"),
    "squares of other sizes": (
        {"w.weight": e4m3(256, 256), "w.weight_scale_inv": torch.ones(4, 2)},
        "w.weight_scale_inv: expected (2, 2) beside w.weight of (256, 256), got (4, 2)",
    ),
    "scales of 16 for 8": (
        {"w.weight": byte(8, 32), "w.weight_scale": e4m3(8, 2), "w.weight_scale_2": torch.ones(1)},
        "w.weight_scale: expected (8, 4) beside w.weight of (8, 32), got (8, 2)",
    ),
    "packed scales of 16 for 8": (
        {"w.weight_packed": byte(8, 32), "w.weight_scale": e4m3(8, 2), "w.weight_global_scale": torch.ones(1)},
        "w.weight_scale: expected (8, 4) beside w.weight_packed of (8, 32), got (8, 2)",
    ),
    "two of one name": (
        {"w_blocks": byte(2, 2, 16), "w_scales": byte(2, 2), "w.weight": e4m3(8, 64), "w.weight_scale": byte(8, 2)},
        "'w_blocks' and 'w.weight' are both weights called 'w'",
    ),
    "a tensor of their name": ({"w": torch.ones(2), "w.weight": e4m3(8, 64), "w.weight_scale": byte(8, 2)}, "both weights called 'w'"),
}


@pytest.mark.parametrize("what", CONTRADICTIONS)
def test_parts_that_contradict_each_other_are_refused_when_they_are_read(what, path):
    stored, words = CONTRADICTIONS[what]
    library.save_file(stored, path)
    refused(lambda: zt.load(path), words, str(path))


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -1.0, [1.0, 2.0], []])
@pytest.mark.parametrize("end", ["weight_scale_2", "weight_global_scale"])
def test_a_tensor_scale_that_is_no_number_for_these_weights_is_refused(number, end, path):
    weight = "weight" if end == "weight_scale_2" else "weight_packed"
    library.save_file({f"w.{weight}": byte(128, 32), "w.weight_scale": e4m3(128, 4), f"w.{end}": torch.tensor(number)}, path)
    refused(lambda: zt.load(path), f"w.{end}: expected")


def test_a_tensor_scale_of_zero_that_multiplies_is_that_of_weights_of_zero(path):
    """A matrix of zeros has no largest number: its file is no damaged one."""
    zero = torch.zeros(1)
    library.save_file({"w.weight": byte(128, 32), "w.weight_scale": e4m3(128, 4), "w.weight_scale_2": zero}, path)
    assert torch.equal(zt.load(path)["w"].tensor_scale, zero)


def test_a_tensor_scale_that_divides_by_zero_is_refused(path):
    library.save_file({"w.weight_packed": byte(8, 32), "w.weight_scale": e4m3(8, 4), "w.weight_global_scale": torch.zeros(1)}, path)
    refused(lambda: zt.load(path), "above zero")


@pytest.mark.parametrize(
    "stored",
    [
        {"w.weight": e4m3(128, 128), "w.weight_scale_inv": torch.tensor(1.0)},  # one scale for all, as others use the name
        {"w.weight": e4m3(64), "w.weight_scale": byte(2)},
        {"w.weight": byte(128, 64), "w.weight_scale": byte(128, 2)},
        {"w_blocks": torch.zeros(2, 2, 16), "w_scales": byte(2, 2)},
        {"w_blocks": byte(16), "w_scales": byte(1)},
        {"w.weight": torch.zeros(128, 8, dtype=torch.int32), "w.weight_scale": e4m3(128, 4), "w.weight_scale_2": torch.tensor(1.0)},
        {"../../etc/x": torch.ones(2), "": torch.ones(1)},
    ],
)
def test_what_only_has_the_names_of_a_format_is_kept_as_it_is(stored, path):
    library.save_file(stored, path)
    loaded = zt.load(path)
    assert set(loaded) == set(stored) and all(torch.equal(loaded[name].float(), stored[name].float()) for name in stored)


def test_a_tensor_beside_weights_is_not_lost(path):
    w = zt.quantize(normal(128, 256), "fp8b128", direction="squares")
    others = {"w.weight_scale": torch.ones(3), "w.weight_packed": torch.ones(2), "w.weight_scale_2": torch.ones(1)}
    zt.save(path, {"w": w, **others})
    loaded = zt.load(path)
    assert set(loaded) == {"w", *others} and all(torch.equal(loaded[name], others[name]) for name in others)


def test_a_scale_of_another_format_beside_weights_does_not_hide_them(path):
    for format, others in {"nvfp4": ("weight_scale_inv",), "mxfp8": ("weight_scale_inv", "weight_scale_2")}.items():
        given = {"w": zt.quantize(normal(128, 256), format), **{f"w.{end}": torch.tensor(1.0) for end in others}}
        zt.save(path, given)
        loaded = zt.load(path)
        assert set(loaded) == set(given) and loaded["w"].format == format


def test_names_that_would_be_stored_as_one_are_refused_in_either_order(path, weights):
    path.write_bytes(b"old")
    for given in ({"w": weights, "w.weight": torch.ones(3)}, {"w.weight": torch.ones(3), "w": weights}):
        refused(lambda given=given: zt.save(path, given), "'w.weight'", "rename one")
    blocks = {"w": zt.quantize(normal(128, 256), "mxfp4"), "w_scales": torch.ones(3)}
    refused(lambda: zt.save(path, blocks), "'w_scales'", "rename one")
    refused(lambda: zt.save(path, {"w": torch.ones(2), "w.weight": e4m3(8, 64), "w.weight_scale": byte(8, 2)}), "both weights called 'w'")
    assert path.read_bytes() == b"old"


UNSAVEABLE = {
    "a list": {"a": [1]}, "nothing": {"a": None}, "a number for a name": {3: torch.ones(1)}, "the name of metadata": {"__metadata__": torch.ones(1)},
    "a surrogate": {"\ud800": torch.ones(1)}, "a meta tensor": {"a": torch.ones(1, device="meta")}, "a sparse one": {"a": torch.eye(3).to_sparse()},
    "a quantised one": {"a": torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)}, "no mapping": [("a", torch.ones(1))],
    "rows of groups": {"a": zt.quantize(normal(4, 128), "mxfp8", groups=torch.tensor([1, 4], dtype=torch.int32))},
    "a scale for each row": {"a": zt.quantize(normal(4, 128).bfloat16(), "fp8token")},
}  # fmt: skip


@pytest.mark.parametrize("what", UNSAVEABLE)
def test_what_cannot_be_stored_is_refused_and_the_old_file_stays(what, path):
    path.write_bytes(b"old")
    refused(lambda: zt.save(path, UNSAVEABLE[what]), "save: ")
    assert path.read_bytes() == b"old" and os.listdir(path.parent) == [path.name]


def test_two_names_of_one_memory_are_refused_and_its_slices_are_not(path):
    x = normal(128, 256)
    refused(lambda: zt.save(path, {"a": x, "b": x}), "'b' lies in the memory of 'a'")
    experts = zt.quantize(normal(4, 128, 256), "mxfp8", layout="plain")
    one_each = {f"expert{i}": zt.Quantized(experts.elements[i], experts.scales[i], "mxfp8") for i in range(4)}
    zt.save(path, one_each)
    loaded = zt.load(path)
    assert all(torch.equal(loaded[name].dequantize(), one_each[name].dequantize()) for name in one_each)


@pytest.mark.parametrize(("first", "then"), [((0, 100), (50, 150)), ((50, 150), (0, 100)), ((0, 100), (99, 100)), ((0, 100), (10, 20))])
def test_tensors_that_share_a_part_of_their_memory_are_refused_and_neighbours_are_not(first, then, path):
    x = normal(200)
    refused(lambda: zt.save(path, {"a": x[slice(*first)], "b": x[slice(*then)]}), "lies in the memory of")
    zt.save(path, {"a": x[:100], "b": x[100:], "c": x[:0]})
    assert torch.equal(zt.load(path)["b"], x[100:])


ESCAPE = "\x1b[31m"


@pytest.mark.parametrize(
    "tensors",
    [
        {f"{ESCAPE}_blocks": byte(2, 2, 8), f"{ESCAPE}_scales": byte(2, 2)},
        {ESCAPE: torch.ones(2), f"{ESCAPE}.weight": e4m3(8, 64), f"{ESCAPE}.weight_scale": byte(8, 2)},
        {f"{ESCAPE}.weight": byte(8, 64), f"{ESCAPE}.weight_scale": e4m3(8, 8), f"{ESCAPE}.weight_scale_2": torch.tensor(-1.0)},
        {"w" * 10**6 + "_blocks": byte(2, 2, 8), "w" * 10**6 + "_scales": byte(2, 2)},
    ],
)
def test_a_name_in_a_file_reaches_no_terminal_as_it_is_and_no_message_whole(tensors, path):
    library.save_file(tensors, str(path))
    assert refused(lambda: zt.load(path)).isprintable()


def test_no_word_of_a_caller_or_of_a_file_s_header_reaches_a_terminal_as_it_is(path, weights):
    for words in (ESCAPE, "w" * 10**6):
        assert refused(lambda words=words: zt.save(path, {words: [1]})).isprintable()
        assert refused(lambda words=words: zt.load(path, words)).isprintable()
    assert refused(lambda: zt.save(path, {f"{ESCAPE}a": weights.elements, f"{ESCAPE}b": weights.elements})).isprintable()
    path.write_bytes(file_of(described(**{ESCAPE: ("F32", [4], 0, 4)}), b"abcd"))
    assert refused(lambda: zt.load(path)).isprintable()
    assert refused(lambda: zt.load(path.parent / ESCAPE)).isprintable()


class Path(os.PathLike):
    def __fspath__(self):
        raise RuntimeError("no path")


@pytest.mark.parametrize("place", ["\ud800", "a\0b", b"w", 3, None, Path(), "w" * 300, "w" * 300 + "/w", "w" * 10**5])
def test_what_names_no_file_is_refused_in_a_sentence(place, path):
    where = os.path.join(path.parent, place) if isinstance(place, str) else place
    refused(lambda: zt.save(where, {"x": torch.ones(2)}), "save: ")
    refused(lambda: zt.load(where), "load: ")
    assert os.listdir(path.parent) == []


@pytest.mark.parametrize("stop", [KeyboardInterrupt, OSError(28, "No space left on device"), MemoryError])
@pytest.mark.parametrize("where", ["fsync", "replace", "save_file"])
def test_saving_that_is_stopped_leaves_the_old_file_and_nothing_else(stop, where, path, weights, monkeypatch):
    zt.save(path, {"up": weights})
    old = path.read_bytes()

    def stopped(*arguments, **named):
        if where == "save_file":
            with open(arguments[1], "wb") as file:
                file.write(b"half of it")
        raise stop

    monkeypatch.setattr(library if where == "save_file" else os, where, stopped)
    with pytest.raises((zoo.ZooError, KeyboardInterrupt)):
        zt.save(path, {"up": weights, "more": torch.ones(1000)})
    monkeypatch.undo()
    assert path.read_bytes() == old and os.listdir(path.parent) == [path.name]


def test_a_file_that_is_in_use_may_be_saved_again_and_a_link_stays_one(path, weights, tmp_path):
    zt.save(path, {"up": weights, "x": normal(1000, 10)})
    loaded = zt.load(path)  # which maps the file
    link = tmp_path / "latest.safetensors"
    link.symlink_to(path)
    zt.save(link, loaded)
    zt.save(link, {"x": torch.ones(2)})
    assert link.is_symlink() and set(zt.load(path)) == {"x"}
    assert torch.equal(loaded["x"], normal(1000, 10)) and torch.equal(loaded["up"].dequantize(), weights.dequantize())


def test_a_device_that_is_not_there_is_refused(path, weights):
    zt.save(path, {"up": weights})
    for device in ("nodevice", "meta", "cuda:77", 3.5):
        refused(lambda device=device: zt.load(path, device), "load: cannot read", str(device))
    assert set(zt.load(path, torch.device("cpu"))) == {"up"}
