"""4-bit gates and ups on Hopper, packed and as a checkpoint stores them, in the emulator, and what their calls are refused for. ZOO_CUBINS is another folder than the packaged one."""

import os

import ml_dtypes
import numpy as np
import pytest

import zoo
from zoo.benchmark.arguments import resolve_without_device
from zoo.catalog import Zoo
from zoo.contract.array import Array, contiguous_strides
from zoo.contract.resolve import resolve
from zoo.errors import ArgumentError, ConstraintError
from zoo.packaged import packaged
from zoo.reference.four_bit_weights import largest_scales
from zoo.reference.fragments import pack_mxfp4, pack_nvfp4

ZOO = Zoo(os.environ["ZOO_CUBINS"]) if "ZOO_CUBINS" in os.environ else packaged
pytestmark = pytest.mark.skipif(
    not ZOO.find("gemm.fp8_nvfp4.dense.swiglu_fp8b128"), reason="these cubins have no gates and ups with 4-bit weights"
)
M, I, K = 5, 144, 64  # noqa: E741


def fragments(a):
    """Rows whose columns are meant as they come: in fragment order."""
    return a.reshape(*a.shape[:-1], a.shape[-1] // 64, 64)


def viewed(rows, order="halves", axis=1):
    """Rows of gates and ups as the kernels name them."""
    extents = {"halves": (2, I), "interleaved": (I, 2)}[order]
    return rows.reshape(*rows.shape[:axis], *extents, *rows.shape[axis + 1 :])


class Experts:
    """Two matrices of gates and ups, packed from one order or the other, and rows for them."""

    def __init__(self, order="halves", largest_at=None):
        random = np.random.default_rng(3)
        q, scales = random.integers(0, 256, (2, 2 * I, K // 2), np.uint8), random.integers(0x20, 0x30, (2, 2 * I, K // 16), np.uint8)
        self.bias = random.standard_normal((2, 2 * I)).astype(np.float32)
        if largest_at is not None:
            self.bias[:, [largest_at, I + largest_at]] = 30
        self.a, self.order = random.standard_normal((M, K)).astype(ml_dtypes.float8_e4m3fn), order
        if order == "interleaved":
            in_turn = np.arange(2 * I).reshape(2, I).T.reshape(-1)
            q, scales, self.bias = q[:, in_turn], scales[:, in_turn], self.bias[:, in_turn]
        self.b, self.bias = pack_nvfp4(q, scales, order), viewed(self.bias, order)

    def arguments(self, gpu, grouping="dense", others=0):
        """Those of the second matrix for the rows, behind `others` of the first, or in the same place; and where the rows then are."""
        a, arrays = self.a, {"b": self.b, "bias": self.bias, "alpha": np.array([[0.05, 0.03], [0.02, 0.04]], np.float32)}
        if grouping == "dense":
            arrays = {name: array[1] for name, array in arrays.items()}
        elif grouping == "m_grouped_masked":
            a = np.stack((np.repeat(a[:1], others + M, 0), np.concatenate((a, a[:others]))))
            arrays["rows"] = np.array([others, M], np.int32)
        else:
            arrays["offsets"] = np.array([others, others + M], np.int32)
            if grouping == "m_grouped_gather":
                arrays["index"] = np.concatenate((np.zeros(others), np.arange(M)[::-1])).astype(np.int32)
                a = a[::-1].copy()
            else:
                a = np.concatenate((np.repeat(a[:1], others, 0), a))
        arrays["a"] = fragments(a)
        rows = a.shape[:-1] if grouping != "m_grouped_gather" else (others + M,)
        place = {"dense": np.s_[:], "m_grouped_masked": np.s_[1, :M]}.get(grouping, np.s_[others:])
        return {name: gpu.array(array) for name, array in arrays.items()} | {"gates": self.order}, rows, place

    def quantised(self, grouping="dense", others=0, variant=None, known=None, **settings):
        """(q, scales) of the rows."""
        gpu = zoo.emulator.Device(arch="sm_90a", scheduling="random", seed=1, multiprocessors=3)
        given, rows, place = self.arguments(gpu, grouping, others)
        q, scales = gpu.empty((*rows, I), "e4m3"), gpu.empty((*rows, -(-I // 128)), "f32")
        if known is not None:
            given["q_scale"] = gpu.array(np.array(known, np.float32))
        name = f"gemm.fp8_nvfp4.{grouping}.swiglu_fp8b128"
        ZOO.launch(name, q=q, scales=scales, columns=I, variant=variant, **given, **settings)
        return q.numpy()[place].view(np.uint8), scales.numpy()[place]


def same(found, expected):
    return all(np.array_equal(one, other) for one, other in zip(found, expected, strict=True))


def test_h_is_the_same_from_either_order_of_gates():
    assert same(Experts("interleaved").quantised(), Experts("halves").quantised())


def test_a_row_does_not_depend_on_its_tile_its_neighbours_or_how_groups_lie():
    experts = Experts()
    expected = experts.quantised(variant="few32")
    assert expected[0].any()
    for grouping, others, variant in (
        ("dense", 0, "t128"), ("dense", 0, "few64"), ("dense", 0, "few8_pair"), ("m_grouped_contiguous", 3, "few32"), ("m_grouped_contiguous", 11, "t128"),
        ("m_grouped_masked", 4, "few32"), ("m_grouped_gather", 30, "few32"),
        ("m_grouped_gather", 7, "few64"), ("m_grouped_gather", 11, "t128"),
        ("m_grouped_contiguous", 3, "few8_pair"), ("m_grouped_masked", 4, "few8_pair"), ("m_grouped_gather", 5, "few8_pair"),
        ("dense", 0, "few32_pair"), ("m_grouped_contiguous", 30, "few32_pair"), ("m_grouped_masked", 4, "few32_pair"), ("m_grouped_gather", 29, "few32_pair"),
    ):  # fmt: skip
        assert same(experts.quantised(grouping, others, variant), expected), (grouping, others, variant)


@pytest.mark.parametrize("form", ["nvfp4", "mxfp4"])
@pytest.mark.parametrize("kind", ["fp8", "bf16"])
@pytest.mark.parametrize(("lying", "tiles"), [("", {"few32", "few64", "t128"}), ("_stored", {"few8", "few32", "t128"})])
def test_one_cubin_a_tile_serves_both_results_and_every_grouping_but_gathered_rows_eight_packed_rows_and_pairs(lying, tiles, kind, form):
    files = [
        {variant.name: variant.file for variant in ZOO.kernel(f"gemm.{kind}_{form}.{grouping}.{result}{lying}").variants}
        for grouping in ("dense", "m_grouped_contiguous", "m_grouped_masked", "m_grouped_gather")
        for result in ("swiglu", "swiglu_fp8b128")
    ]
    rounded, quantised = files[::2], files[1::2]
    for of_groupings in (rounded, quantised):
        assert of_groupings[0] == of_groupings[1] == of_groupings[2]
        assert of_groupings[3].keys() == of_groupings[0].keys() and not {*of_groupings[3].values()} & {*of_groupings[0].values()}
    if kind == "fp8":  # of tokens with scales for 1 x 128
        tiles = tiles | ({"few32_blocks"} if lying else {"few32_blocks", "few64_blocks"})
    assert dict(rounded[0].items() & quantised[0].items()).keys() == tiles
    by_one, by_clusters = rounded[0].keys() - tiles, quantised[0].keys() - tiles
    pairs = {"few8_pair", "few32_pair", "few8_pair_blocks"} if kind == "fp8" else {"few8_pair"}
    assert (by_one, by_clusters) == ((set(), set()) if lying else ({"few8"}, pairs))


@pytest.mark.parametrize("grouping", ["dense", "m_grouped_contiguous", "m_grouped_masked", "m_grouped_gather"])
def test_tiles_of_all_widths_take_the_scale_for_1_x_128_of_the_row_itself_however_rows_come(grouping):
    """Groups of 9, 0 and 4 rows, so two tiles and the end of a third; K ends within a block of 256 and within one of 128. Places lie three rows
    further apart than they are long, and rows that are nobody's have NaN for scales."""
    random = np.random.default_rng(17)
    wide, sizes = 320, np.array([9, 0, 4], np.int32)
    q, scales = random.integers(0, 256, (3, 2 * I, wide // 2), np.uint8), random.integers(0x20, 0x30, (3, 2 * I, wide // 16), np.uint8)
    shape = {"dense": (11,), "m_grouped_masked": (3, 9)}.get(grouping, (13,))
    arrays = {"b": pack_nvfp4(q, scales, "halves"), "a": fragments(random.standard_normal((*shape, wide)).astype(ml_dtypes.float8_e4m3fn))}
    arrays["a_block_scale"] = np.exp2(random.integers(-9, 9, (*shape, 3))).astype(np.float32)
    if grouping == "dense":
        arrays["b"] = arrays["b"][0]
    elif grouping == "m_grouped_masked":
        arrays["rows"] = sizes
        arrays["a_block_scale"][1:, 4:] = arrays["a_block_scale"][1, :4] = np.nan
    else:
        arrays["offsets"] = np.cumsum(sizes).astype(np.int32)
    if grouping == "m_grouped_gather":
        arrays["index"] = np.array([12, 3, -1, 7, 7, 99, 0, 5, 2, 11, 1, 4, 8], np.int32)
    found = []
    for variant in ("few8_pair_blocks", "few32_blocks", "few64_blocks"):
        gpu = zoo.emulator.Device(arch="sm_90a", scheduling="random", seed=6, multiprocessors=3)
        q_of_h, scales_of_h = gpu.array(np.zeros((*shape, I), ml_dtypes.float8_e4m3fn)), gpu.array(np.zeros((*shape, 2), np.float32))
        given = {name: gpu.array(array) for name, array in arrays.items()}
        if grouping == "m_grouped_masked":
            given["a_block_scale"] = gpu.array(np.pad(arrays["a_block_scale"], ((0, 0), (0, 3), (0, 0)), constant_values=np.nan))[:, :9]
        ZOO.launch(f"gemm.fp8_nvfp4.{grouping}.swiglu_fp8b128", q=q_of_h, scales=scales_of_h, columns=I, variant=variant, **given)
        found.append((q_of_h.numpy().view(np.uint8), scales_of_h.numpy()))
    assert found[0][1].any() and not np.isnan(found[0][1]).any() and same(*found[:2]) and same(*found[1:])


@pytest.mark.parametrize("known", [None, (0.03,), (0.03, 0.5, 0.01)], ids=["scales found", "one known", "one of each group"])
@pytest.mark.parametrize(("kind", "tiles"), [("fp8", ("few8",)), ("bf16", ("few8", "few32"))])
def test_stored_tiles_that_clusters_take_are_those_of_one_cta(kind, tiles, known):
    """Three tiles of 128 rows of B, so the last has no other; groups of 9, 0 and 35 rows; largest magnitudes in either tile. In 16 bits, too,
    where the same cubins know no cluster."""
    random = np.random.default_rng(29)
    sizes, wide = np.array([9, 0, 35], np.int32), 256
    rows = sizes.sum()
    a = random.standard_normal((rows, wide)) * np.exp2(random.integers(-3, 3, (rows, 1)))
    arrays = {
        "b": random.integers(0, 256, (3, 2, I, wide // 2), np.uint8),
        "b_scale": random.integers(0x20, 0x30, (3, 2, I, wide // 16), np.uint8).view(ml_dtypes.float8_e4m3fn),
        "a": a.astype(ml_dtypes.bfloat16) if kind == "bf16" else fragments(a.astype(ml_dtypes.float8_e4m3fn)),
        "offsets": np.cumsum(sizes).astype(np.int32),
    }
    found = {}
    for result in ("swiglu_fp8b128",) if known else ("swiglu_fp8b128", "swiglu"):
        for variant in (*tiles, "t128"):
            gpu = zoo.emulator.Device(arch="sm_90a", scheduling="random", seed=11, multiprocessors=3)
            given = {name: gpu.array(array) for name, array in arrays.items()}
            if result == "swiglu":
                given["d"] = gpu.empty((rows, I), "bf16")
                written = ("d",)
            else:
                given |= {"q": gpu.empty((rows, I), "e4m3"), "scales": gpu.empty((rows, 2), "f32")}
                written = ("q", "scales")
                if known:
                    given["q_scale"] = gpu.array(np.array(known, np.float32))
            ZOO.launch(f"gemm.{kind}_nvfp4.m_grouped_contiguous.{result}_stored", variant=variant, **given)
            found[result, variant] = [given[name].numpy().view(np.uint8) for name in written]
        assert found[result, "t128"][0].any()
        assert all(same(found[result, tile], found[result, "t128"]) for tile in tiles), result


@pytest.mark.parametrize(
    ("kind", "lying", "tile"),
    [("fp8", "_stored", "few32"), ("fp8", "_stored", "few32_blocks"), ("bf16", "", "few32"), ("bf16", "", "few64")],
)
def test_h_is_the_same_whether_clusters_have_its_columns_or_a_cta_in_turn(kind, lying, tile):
    """Three tiles of 128 rows of B, groups of 9, 0 and 70 rows: on 132 multiprocessors clusters take two tiles at once, on 3 CTAs take them in turn."""
    random = np.random.default_rng(31)
    sizes, wide = np.array([9, 0, 70], np.int32), 256
    rows = sizes.sum()
    q = random.integers(0, 256, (3, 2 * I, wide // 2), np.uint8)
    b_scale = random.integers(0x20, 0x30, (3, 2 * I, wide // 16), np.uint8)
    a = random.standard_normal((rows, wide)) * np.exp2(random.integers(-3, 3, (rows, 1)))
    arrays = {
        "a": a.astype(ml_dtypes.bfloat16) if kind == "bf16" else fragments(a.astype(ml_dtypes.float8_e4m3fn)),
        "offsets": np.cumsum(sizes).astype(np.int32),
    }
    arrays |= (
        {"b": viewed(q), "b_scale": viewed(b_scale).view(ml_dtypes.float8_e4m3fn)}
        if lying
        else {"b": pack_nvfp4(q, b_scale, "halves", kind)}
    )
    if tile == "few32_blocks":
        arrays["a_block_scale"] = np.exp2(random.integers(-9, 9, (rows, 2))).astype(np.float32)
    kernel, found = ZOO.kernel(f"gemm.{kind}_nvfp4.m_grouped_contiguous.swiglu_fp8b128{lying}"), []
    columns = {} if lying else {"columns": I}
    for multiprocessors, together in ((132, 2), (3, 1)):
        gpu = zoo.emulator.Device(arch="sm_90a", scheduling="random", seed=13, multiprocessors=multiprocessors)
        given = {name: gpu.array(array) for name, array in arrays.items()}
        given |= {"q": gpu.empty((rows, I), "e4m3"), "scales": gpu.empty((rows, 2), "f32")}
        laid = {
            name: Array((place + 1) << 30, array.dtype, array.shape, contiguous_strides(array.shape))
            for place, (name, array) in enumerate(given.items())
        }
        known = {"q_scale": Array(1 << 40, "f32", (1,), (1,))}
        clusters = [resolve(kernel, laid | columns | more, (9, 0), multiprocessors, tile).cluster[0] for more in ({}, known)]
        assert clusters == [together, 1]
        ZOO.launch(kernel.name, variant=tile, **given, **columns)
        found.append([given[name].numpy().view(np.uint8) for name in ("q", "scales")])
    assert found[0][0].any() and same(*found)


@pytest.mark.parametrize(("variant", "narrower", "rows"), [("few32_pair", "few8_pair", 33), ("few64_blocks", "few32_blocks", 70)])
def test_rows_of_a_full_tile_and_of_the_next_are_those_of_narrower_tiles(variant, narrower, rows):
    """Largest magnitudes of rows lie in either tile of 64 columns, and differ from row to row, so no row's scale can be another's."""
    random = np.random.default_rng(23)
    q, scales = random.integers(0, 256, (2, 2 * I, 96), np.uint8), random.integers(0x20, 0x30, (2, 2 * I, 12), np.uint8)
    a = random.standard_normal((rows + 4, 192)) * np.exp2(random.integers(-3, 3, (rows + 4, 1)))
    arrays = {"b": pack_nvfp4(q, scales, "halves"), "a": fragments(a.astype(ml_dtypes.float8_e4m3fn))}
    arrays["offsets"] = np.array([rows, rows + 4], np.int32)
    if "blocks" in variant:
        arrays["a_block_scale"] = np.exp2(random.integers(-9, 9, (rows + 4, 2))).astype(np.float32)
    found = []
    for tile in (variant, narrower):
        gpu = zoo.emulator.Device(arch="sm_90a", scheduling="random", seed=9, multiprocessors=4)
        q_of_h = gpu.array(np.zeros((rows + 4, I), ml_dtypes.float8_e4m3fn))
        scales_of_h = gpu.array(np.zeros((rows + 4, 2), np.float32))
        given = {name: gpu.array(array) for name, array in arrays.items()}
        ZOO.launch("gemm.fp8_nvfp4.m_grouped_contiguous.swiglu_fp8b128", q=q_of_h, scales=scales_of_h, columns=I, variant=tile, **given)
        found.append((q_of_h.numpy().view(np.uint8), scales_of_h.numpy()))
    assert (found[0][1] > 0).all() and len(np.unique(found[0][1])) > rows and same(*found)


@pytest.mark.parametrize("kind", ["fp8", "bf16"])
@pytest.mark.parametrize("variant", ["few8", "few32", "few64", "t128"])
def test_rows_through_an_index_are_those_that_lie_in_turn(kind, variant):
    """Rows that are none of A's are zeros, and nothing that a tile before left in its place; h of them is that of bias."""
    random = np.random.default_rng(7)
    experts, index = Experts(), np.array([4, -1, 0, 0, 2, 3, 1, 99, 1, 2, 4], np.int32)
    a = random.standard_normal((M, 192)).astype(ml_dtypes.float8_e4m3fn if kind == "fp8" else ml_dtypes.bfloat16)
    q, scales = random.integers(0, 256, (2, 2 * I, 96), np.uint8), random.integers(0x20, 0x30, (2, 2 * I, 12), np.uint8)
    exists = (index >= 0) & (index < M)
    rows = np.where(exists[:, None], a.astype(np.float32)[np.clip(index, 0, M - 1)], 0).astype(a.dtype)
    found = []
    a, rows = (fragments(one) if kind == "fp8" else one for one in (a, rows))
    for grouping, given in (("m_grouped_gather", {"a": a, "index": index}), ("m_grouped_contiguous", {"a": rows})):
        gpu = zoo.emulator.Device(arch="sm_90a", scheduling="random", seed=2, multiprocessors=2)
        given |= {"b": pack_nvfp4(q, scales, "halves", kind), "bias": experts.bias, "offsets": np.array([9, 11], np.int32)}
        d = gpu.empty((11, I), "bf16")
        arrays = {name: gpu.array(array) for name, array in given.items()}
        ZOO.launch(f"gemm.{kind}_nvfp4.{grouping}.swiglu", d=d, variant=variant, **arrays)
        found.append(d.numpy().view(np.uint16))
    assert found[0].any() and np.array_equal(*found)


@pytest.mark.parametrize("order", ["halves", "interleaved"])
@pytest.mark.parametrize("formats", ["fp8_nvfp4", "fp8_mxfp4", "bf16_nvfp4", "bf16_mxfp4"])
def test_gates_as_they_are_stored_give_the_bits_of_packed_ones(formats, order):
    """Of 144 columns, which end within a tile, so that boxes of gates reach into the ups, and those of ups into the next group."""
    random = np.random.default_rng(11)
    kind, form = formats.split("_")
    a = random.standard_normal((11, 128)).astype(ml_dtypes.float8_e4m3fn if kind == "fp8" else ml_dtypes.bfloat16)
    q = random.integers(0, 256, (2, 2 * I, 64), np.uint8)
    low, high, block = (0x20, 0x30, 16) if form == "nvfp4" else (110, 130, 32)
    scales = random.integers(low, high, (2, 2 * I, 128 // block), np.uint8)
    bias = viewed(random.standard_normal((2, 2 * I)).astype(np.float32), order)
    a = fragments(a) if kind == "fp8" else a
    of_codes = viewed(q, order)
    if form == "nvfp4":
        packed, stored = (
            {"b": pack_nvfp4(q, scales, order, kind)},
            {"b": of_codes, "b_scale": viewed(scales, order).view(ml_dtypes.float8_e4m3fn)},
        )
    else:
        found = pack_mxfp4(q, scales, order, kind)
        largest = np.full((2, -(-2 * I // 64) * 64), 127, np.uint8)
        largest[:, : 2 * I] = largest_scales(q, scales)
        packed = {"b": found.b, "b_row_scale": found.row_scale}
        stored = {"b": of_codes, "b_scale": viewed(scales, order).view(ml_dtypes.float8_e8m0fnu)}
        stored["b_row_scale"] = largest.view(ml_dtypes.float8_e8m0fnu)
    names = [f"gemm.{formats}.m_grouped_contiguous.swiglu{extra}" for extra in ("", "_stored")]
    results = []
    for name, weights in zip(names, (packed, stored), strict=True):
        for variant in ("few32",) if weights is packed else [one.name for one in ZOO.kernel(name).variants if "blocks" not in one.name]:
            gpu = zoo.emulator.Device(arch="sm_90a", scheduling="random", seed=4, multiprocessors=3)
            given = {"a": a, "bias": bias, "offsets": np.array([4, 11], np.int32)} | weights
            results.append(gpu.empty((11, I), "bf16"))
            ZOO.launch(name, d=results[-1], gates=order, variant=variant, **{what: gpu.array(array) for what, array in given.items()})
    bits = [d.numpy().view(np.uint16) for d in results]
    assert bits[0].any() and len(bits) == 4 and all(np.array_equal(one, bits[0]) for one in bits)


@pytest.mark.parametrize("variant", ["few32", "few8_pair", "few32_pair"])
@pytest.mark.parametrize("column", [5, 70, 127, 130])
def test_the_largest_of_128_columns_is_found_in_either_tile_and_in_a_block_that_ends_early(column, variant):
    _, scales = Experts(largest_at=column).quantised(variant=variant, activation="deepseek_v4", limit=20.0)
    _, without = Experts().quantised(variant=variant, activation="deepseek_v4", limit=20.0)
    assert (scales[:, column // 128] > 0.8).all()  # about 20 * 20 / 448
    assert np.array_equal(scales[:, 1 - column // 128], without[:, 1 - column // 128])


def test_a_scale_that_is_known_is_that_of_both_ctas_of_a_cluster():
    experts = Experts()
    for grouping, known in (("dense", [0.07]), ("m_grouped_contiguous", [0.05, 0.09])):
        one, *pairs = (experts.quantised(grouping, 3 * (grouping != "dense"), tile, known) for tile in ("few32", "few8_pair", "few32_pair"))
        assert all(same(pair, one) and (pair[1] == np.float32(known[-1])).all() for pair in pairs)


@pytest.mark.parametrize("rows", [1, 8])
def test_a_scale_that_is_known_changes_neither_the_tile_of_few_rows_nor_its_grid(rows):
    a, b = Array(1 << 40, "e4m3", (rows, 64, 64), (4096, 64, 1)), Array(2 << 40, "u8", (448, 64, 2, 1152), (64 * 2304, 2304, 1152, 1))
    q, scales = Array(3 << 40, "e4m3", (rows, 14336), (14336, 1)), Array(4 << 40, "f32", (rows, 112), (112, 1))
    given = {"a": a, "b": b, "q": q, "scales": scales}
    found, known = (
        resolve_without_device(ZOO.kernel("gemm.fp8_nvfp4.dense.swiglu_fp8b128"), given | more)
        for more in ({}, {"q_scale": Array(5 << 40, "f32", (1,), (1,))})
    )
    assert found.variant.name == known.variant.name == "few8_pair" and found.grid == known.grid


def test_mxfp4_rows_keep_their_own_powers_of_two():
    """Rows of one unit differ by 2^8, so a power of a neighbour's, or of a gate's for its up's, is far off."""
    random = np.random.default_rng(5)
    q = np.full((2 * 16, 16), 0x22, np.uint8)  # ones
    exponents = random.integers(123, 131, 2 * 16)
    packed = pack_mxfp4(q, exponents[:, None].astype(np.uint8), "halves", "bf16")
    gpu = zoo.emulator.Device(arch="sm_90a")
    d = gpu.empty((1, 16), "f16")
    ZOO.launch(
        "gemm.bf16_mxfp4.dense.swiglu",
        a=gpu.array(np.eye(1, 32).astype(ml_dtypes.bfloat16)), b=gpu.array(packed.b), b_row_scale=gpu.array(packed.row_scale.view(np.uint8)), d=d,
    )  # fmt: skip
    gate, up = np.exp2(exponents.astype(np.float64) - 127).reshape(2, 16)
    np.testing.assert_allclose(d.numpy()[0].astype(np.float64), gate / (1 + np.exp(-gate)) * up, rtol=2e-3)


def call(gpu, **changed):
    given, rows, _ = Experts().arguments(gpu, "m_grouped_contiguous", 2)
    results = {"q": gpu.empty((*rows, I), "e4m3"), "scales": gpu.empty((*rows, 2), "f32"), "columns": I}
    return {name: value for name, value in (given | results | changed).items() if value is not None}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"q_scale": (3,)}, "q_scale has one entry, or one for each group"),
        ({"alpha": (2, 3)}, "alpha has one entry, or one for gates and one for ups"),
        ({"columns": 0}, "bias: expected (2, 2, 160)"),
        ({"columns": 136}, "there must be as many gates as ups, a multiple of 16"),
        ({"columns": 128}, "b must have a tile for each 64 of its rows"),
        ({"bias": (2, I)}, "bias: expected 3 dimensions (G, 2, N // 2)"),
    ],
    ids=[
        "scales of three groups",
        "three alphas",
        "no columns for an I of 144",
        "half a unit",
        "fewer columns than b has",
        "bias of h",
    ],
)
def test_a_call_that_cannot_be_meant_is_refused_in_words(changed, words):
    gpu = zoo.emulator.Device(arch="sm_90a")
    arrays = {name: gpu.array(np.ones(value, np.float32)) if isinstance(value, tuple) else value for name, value in changed.items()}
    with pytest.raises((ArgumentError, ConstraintError)) as refused:
        ZOO.launch("gemm.fp8_nvfp4.m_grouped_contiguous.swiglu_fp8b128", **call(gpu, **arrays))
    assert words in str(refused.value)
