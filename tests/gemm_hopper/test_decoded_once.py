"""4-bit weights of groups that are decoded once, into a workspace, in the emulator, and which calls take that. ZOO_CUBINS is another folder than the packaged one."""

import os

import ml_dtypes
import numpy as np
import pytest

import zoo
from zoo.catalog import Zoo
from zoo.errors import ArgumentError
from zoo.reference.fragments import pack_nvfp4, permuted_columns
from zoo.reference.kernels import run
from zoo.shipped.packaged import packaged

ZOO = Zoo(os.environ["ZOO_CUBINS"]) if "ZOO_CUBINS" in os.environ else packaged
CONTIGUOUS, MASKED = "gemm.fp8_nvfp4.m_grouped_contiguous", "gemm.fp8_nvfp4.m_grouped_masked"
ONCE = {"regular": "t256_once", "never": "t256_once_never"}


def bytes_of(G, N, K):
    return G * -(-N // 128) * -(-K // 256) * (2 * 16384 + 2 * 4) + 16


def drawn(G, M, N, K):
    random = np.random.default_rng(G + M + N + K)
    q, scales = random.integers(0, 256, (G, N, K // 2), np.uint8), random.integers(0x30, 0x40, (G, N, K // 16), np.uint8)
    a = permuted_columns(random.standard_normal((M, K)).astype(ml_dtypes.float8_e4m3fn))
    return {"a": a, "b": pack_nvfp4(q, scales), "alpha": random.random(G, np.float32) + 0.5}


def emulated(name, given, rows, N, multiprocessors, **settings):
    """D of `rows` rows, poison where nobody writes."""
    gpu = zoo.emulator.Device(arch="sm_90a", scheduling="random", seed=3, multiprocessors=multiprocessors)
    d = gpu.array(np.full((*rows, N), -7, ml_dtypes.bfloat16))
    ZOO.launch(name, d=d, **{name: gpu.array(array) for name, array in given.items()}, **settings)
    return d.numpy()


@pytest.mark.parametrize("multiprocessors", [2, 3, 7])
@pytest.mark.parametrize("promotion", ONCE)
def test_groups_without_rows_among_more_than_a_warp_finds_at_once_have_no_units_and_no_tiles(promotion, multiprocessors):
    sizes = np.array([0, 3, *[0] * 31, 1, 0, 258, *[0] * 30, 4, 0])
    G, M, N, K = len(sizes), 270, 136, 192
    given = drawn(G, M, N, K) | {"offsets": sizes.cumsum().astype(np.int32)}
    expected = np.full((M, N), -7, ml_dtypes.bfloat16)
    run(CONTIGUOUS, {**given, "d": expected, "promotion": promotion})
    workspace = np.random.default_rng(1).integers(0, 256, bytes_of(G, N, K), np.uint8)
    settings = {"variant": ONCE[promotion], "promotion": promotion}
    found = emulated(CONTIGUOUS, given | {"workspace": workspace}, (M,), N, multiprocessors, **settings)
    np.testing.assert_array_equal(found.view(np.uint16), expected.view(np.uint16))
    assert (found[sizes.sum() :] == -7).all() and (found[: sizes.sum()] != -7).any(1).all()


def test_a_workspace_for_one_matrix_is_refused_where_groups_have_several():
    given = drawn(3, 300, 128, 64) | {"offsets": np.array([100, 200, 300], np.int32), "d": np.zeros((300, 128), ml_dtypes.bfloat16)}
    for size in (bytes_of(1, 128, 64), bytes_of(3, 128, 64) - 1):
        with pytest.raises(ArgumentError, match="workspace: expected"):
            run(CONTIGUOUS, {**given, "workspace": np.zeros(size, np.uint8)})


@pytest.mark.parametrize("rows", [(8, 256), (2, 16384)], ids=["few", "many"])
def test_returning_calls_make_a_workspace_only_where_weights_are_decoded_once(rows):
    """530 MB are no small thing."""
    G, of_each = rows
    N, K = 5760, 2880
    shapes = {"a": ((G * of_each, K), "e4m3"), "b": ((G, N // 64, K // 64, 2304), "u8"), "offsets": ((G,), "i32")}
    made = ZOO.shapes(CONTIGUOUS, **shapes, N=N)
    assert made["workspace"].shape == (bytes_of(G, N, K),)
    assert "workspace" not in ZOO.shapes(CONTIGUOUS, **shapes, N=N, workspace=False)
    assert "workspace" not in ZOO.shapes(MASKED, a=((G, 256, K), "e4m3"), b=shapes["b"], rows=((G,), "i32"), N=N, workspace=False)
