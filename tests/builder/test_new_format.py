"""A format of one's own: one file of words, one header and the line that includes it, and every table has a kernel for it."""

import shutil

import pytest

from tests.builder.build_trees import ROOT, needs_nvcc, run_build
from tools.builder.documents import Documents
from tools.builder.scope import check_scope
from tools.builder.table import read_tables
from zoo.contract.manifest import Manifest

WORDS = """\
TITLE = "e5m2"
scale = "f32"
BLOCK = 64
second_layout = "mn_major"
elements = ["e5m2"]
PER_BYTE = 1
stored = ""
rule = "scaling.pow2"
tensor_scaled = false
K_UNIT = 16
ROW_UNIT = 16
"""
HEADER = r"""
// toy8: 64 values share a float32 scale; an element is e5m2.
#pragma once

#include "common/formats/format.cuh"
#include "common/formats/fp8b128.cuh"

namespace zoo {

struct Toy8 {
    static constexpr int BLOCK = 64, ELEMENTS_PER_BYTE = 1;
    static constexpr bool DIVIDES_SCALES = true;
    using Scale = uint32_t;  // the bits of the float32
    bool pow2;

    __device__ __forceinline__ explicit Toy8(bool pow2) : pow2(pow2) {}
    __device__ __forceinline__ void prepare() {}

    __device__ __forceinline__ uint32_t scale_of(float amax) const {
        const uint32_t power = e8m0_of<Rounding::rceil, Fp8<e5m2>>(amax) << 23;
        uint32_t scale = pow2 ? power : __float_as_uint(__fdiv_rn(amax, Fp8<e5m2>::MAX));
        scale = max(scale, 0x00800000u);
        scale = amax == 0.0f ? 0x3F800000u : scale;
        return __float_as_uint(amax) < 0x7F800000 ? scale : 0x7FFFFFFF;
    }
    __device__ __forceinline__ float multiplier(uint32_t scale) const { return __frcp_rn(__uint_as_float(scale)); }

    template <class In, int WORDS>
    __device__ __forceinline__ void encode_loaded(const typename In::Cell& loaded, float multiplier, uint32_t (&words)[WORDS]) const {
        float values[In::VALUES];
        In::to_float(loaded, values);
#pragma unroll
        for (int w = 0; w < WORDS; w++) words[w] = encode_four_fp8<e5m2>(values + 4 * w, multiplier);
    }
};

template <>
struct FormatOf<e5m2, f32> : FormatOfRule<Toy8> {};

template <>
struct DecoderOf<e5m2, f32> {
    struct Type : Fp8b128Decoder {
        static constexpr int BLOCK = 64;
        template <int COUNT>
        __device__ __forceinline__ void decode(uint2 bytes, float (&values)[COUNT]) const {
            decode_fp8<e5m2>(bytes, values);
        }
    };
};

}  // namespace zoo
"""
KERNELS = (
    {"quantize.toy8.rows", "quantize.toy8.cols", "quantize.toy8.both", "quantize.toy8.squares", "quantize.toy8.cols.experts"}
    | {
        f"quantize.toy8.{direction}.{grouping}"
        for direction in ("rows", "cols", "both")
        for grouping in ("m_grouped_contiguous", "m_grouped_padded")
    }
    | {"dequantize.toy8.rows", "dequantize.toy8.squares"}
)


@pytest.fixture
def tree(tmp_path):
    """zoo's own sources with the format, but for products, which have formats of their own and take long to read."""
    root = shutil.copytree(ROOT / "src_cu", tmp_path / "source", ignore=shutil.ignore_patterns("gemm"))
    for part in ("gemm/tables/parts", "gemm/epilogue"):  # quantisers read activations there
        shutil.copytree(ROOT / "src_cu" / part, root / part)
    (root / "names.toml").write_text('formats = ["toy8"]\n')
    (root / "common/formats/toy8.toml").write_text(WORDS)
    (root / "common/formats/toy8.cuh").write_text(HEADER.lstrip())
    with open(root / "common/formats.cuh", "a") as formats:
        formats.write('#include "common/formats/toy8.cuh"\n')
    return root


def test_every_table_of_formats_has_it_and_reads_what_exists(tree):
    tables = {table.name: table for table in read_tables(tree) if "toy8" in table.name}
    assert tables.keys() == KERNELS, "none of them names a format"
    for table in tables.values():
        check_scope(table)
    q, scales = tables["quantize.toy8.rows"].entry["arguments"][1:]
    assert (q["dtypes"], scales["dtypes"]) == (["e5m2"], ["f32"])
    assert scales["forms"][0]["shape"] == ["M", "ceil_div(K, 64)"]
    assert len(Documents(tree).folder("common/formats")) == 5


@needs_nvcc
@pytest.mark.parametrize("kernel", ["quantize.toy8.rows", "dequantize.toy8.squares"])
def test_its_kernels_compile(tree, tmp_path, kernel):
    run_build("--source", tree, "--output", tmp_path / "cubins", "--only", f"{kernel} *bf16*", "--arch", "sm_90a")
    assert Manifest(tmp_path / "cubins/manifest.json").names == (kernel,)
