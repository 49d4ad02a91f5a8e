"""4-bit weights of groups that are decoded once, into a workspace, in the emulator, and which calls take that. ZOO_CUBINS is another folder than the packaged one."""

import os

import ml_dtypes
import numpy as np
import pytest

import zoo
from zoo.calls import settled
from zoo.catalog import Zoo
from zoo.contract.array import Array, contiguous_strides
from zoo.contract.trial import without_idle_workspaces, without_workspaces_idle_everywhere
from zoo.errors import ArgumentError
from zoo.packaged import packaged
from zoo.reference.fragments import pack_nvfp4, permuted_columns
from zoo.reference.kernels import run

ZOO = Zoo(os.environ["ZOO_CUBINS"]) if "ZOO_CUBINS" in os.environ else packaged
CONTIGUOUS, MASKED = "gemm.fp8_nvfp4.m_grouped_contiguous", "gemm.fp8_nvfp4.m_grouped_masked"
KINDS = ("regular", "blocks")
UNIT = 128 * 128  # bytes


def bytes_of(G, N, K):
    return G * -(-N // 128) * -(-K // 256) * (2 * 16384 + 2 * 4) + 16


def drawn(G, M, N, K):
    random = np.random.default_rng(G + M + N + K)
    q, scales = random.integers(0, 256, (G, N, K // 2), np.uint8), random.integers(0x30, 0x40, (G, N, K // 16), np.uint8)
    a = permuted_columns(random.standard_normal((M, K)).astype(ml_dtypes.float8_e4m3fn))
    return {"a": a, "b": pack_nvfp4(q, scales), "alpha": random.random(G, np.float32) + 0.5}


def emulated(name, given, rows, N, multiprocessors, **settings):
    """D, poison where nobody writes, and the workspace as it is left."""
    gpu = zoo.emulator.Device(arch="sm_90a", scheduling="random", seed=3, multiprocessors=multiprocessors)
    d = gpu.array(np.full((*rows, N), -7, ml_dtypes.bfloat16))
    arrays = {name: gpu.array(array) for name, array in given.items()}
    ZOO.launch(name, d=d, **arrays, **settings)
    return d.numpy(), arrays["workspace"].numpy()


@pytest.mark.parametrize(("name", "multiprocessors"), [(CONTIGUOUS, 2), (CONTIGUOUS, 7), (MASKED, 3)])
@pytest.mark.parametrize("kind", KINDS)
def test_groups_without_rows_among_more_than_a_warp_finds_at_once_have_no_units_and_no_tiles(name, kind, multiprocessors):
    sizes = np.array([0, 3, *[0] * 31, 1, 0, 257, *[0] * 30, 4, 0])
    G, N, K = len(sizes), 136, 192
    rows = (G, 260) if name == MASKED else (270,)
    given = drawn(G, np.prod(rows), N, K)
    if kind == "blocks":
        given["a_block_scale"] = np.random.default_rng(2).random((np.prod(rows), 2), np.float32) + 0.5
    if name == MASKED:
        given |= {one: given[one].reshape(*rows, *given[one].shape[1:]) for one in ("a", "a_block_scale") if one in given}
        given["rows"] = sizes.astype(np.int32)
    else:
        given["offsets"] = sizes.cumsum().astype(np.int32)
    expected = np.full((*rows, N), -7, ml_dtypes.bfloat16)
    run(name, {**given, "d": expected})
    before = np.random.default_rng(1).integers(0, 256, bytes_of(G, N, K), np.uint8)
    settings = {"variant": "t256_once" + f"_{kind}" * (kind != "regular")}
    found, after = emulated(name, given | {"workspace": before}, rows, N, multiprocessors, **settings)
    np.testing.assert_array_equal(found.view(np.uint16), expected.view(np.uint16))
    assert (found != -7).any(-1).sum() == sizes.sum()
    units = after[: G * 4 * UNIT].reshape(G, -1) != before[: G * 4 * UNIT].reshape(G, -1)
    np.testing.assert_array_equal(units.any(1), sizes > 0)


def test_a_workspace_for_one_matrix_is_refused_where_groups_have_several():
    given = drawn(3, 300, 128, 64) | {"offsets": np.array([100, 200, 300], np.int32), "d": np.zeros((300, 128), ml_dtypes.bfloat16)}
    for size in (bytes_of(1, 128, 64), bytes_of(3, 128, 64) - 1):
        with pytest.raises(ArgumentError, match="workspace: expected"):
            run(CONTIGUOUS, {**given, "workspace": np.zeros(size, np.uint8)})


@pytest.mark.parametrize("place", ["H200", "any"])
@pytest.mark.parametrize(
    ("rows", "more", "made"), [(16, {}, False), (2048, {}, True), (2048, {"d": "f32"}, False), (2048, {"workspace": False}, False)]
)
def test_a_call_that_returns_makes_566_mb_only_where_weights_are_decoded_once(place, rows, more, made):
    """zoo.call knows its GPU, a program of JAX none yet."""
    G, N, K, kernel = 32, 5760, 2880, ZOO.kernel(CONTIGUOUS)
    inputs = {"a": ("e4m3", G * rows, K // 64, 64), "b": ("u8", G, N // 64, K // 64, 2304), "offsets": ("i32", G)}
    arrays = {name: Array(0, dtype, tuple(shape), contiguous_strides(tuple(shape))) for name, (dtype, *shape) in inputs.items()}
    call = settled(kernel, {**arrays, "N": N, "d": "bf16"} | more)
    if place == "any":
        found = without_workspaces_idle_everywhere(kernel, call, None)
    else:
        found = without_idle_workspaces(kernel, call, (9, 0), 132, None)
    assert ("workspace" in found.made) == made
    assert not made or found.made["workspace"].shape == (bytes_of(G, N, K),)
