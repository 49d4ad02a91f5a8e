"""Tables that are right: what they expand to."""

import json

from tests.builder.build_trees import TABLE, edited, write_tree
from tools.builder.expand import expand
from tools.builder.output import manifest_text
from tools.builder.scope import check_scope
from tools.builder.table import read_tables


def variants_of(folder, table=TABLE):
    (read,) = read_tables(write_tree(folder, table))
    check_scope(read)
    return expand(read)


def test_variants_are_the_product_in_the_order_of_the_table(tmp_path):
    names = [(variant.arch, variant.name) for variant in variants_of(tmp_path)]
    tiles = ["once_t64", "once_t128", "twice_t64", "twice_t128"]
    assert names == [(arch, name) for arch in ("sm_90a", "sm_100f") for name in tiles]


def test_an_argument_of_several_dtypes_multiplies_and_names_the_variants(tmp_path):
    table = edited(TABLE, ('dtypes = ["f32"]\nshape', 'dtypes = ["bf16", "f32"]\nshape'))
    variants = variants_of(tmp_path, table)
    assert len(variants) == 16
    assert variants[0].name == "bf16_once_t64"
    assert variants[0].dtypes == {"x": "bf16"}
    assert variants[0].symbol == "quantize_mxfp8_rows__bf16_once_t64"
    assert variants[0].file == "sm_90a/quantize_mxfp8_rows__bf16_once_t64.cubin"


def test_a_tile_is_built_only_for_what_it_names(tmp_path):
    table = edited(
        TABLE,
        ('dtypes = ["f32"]\nshape', 'dtypes = ["bf16", "f32"]\nshape'),
        ('cost = "THREADS"', 'arch = ["sm_90a"]\ndtypes = { x = ["bf16"] }\noptions = { mode = ["twice"] }'),
    )
    variants = [variant for variant in variants_of(tmp_path, table) if variant.tile.name == "t64"]
    assert [(variant.arch, variant.name) for variant in variants] == [("sm_90a", "bf16_twice_t64")]


def test_two_tiles_of_one_name_serve_two_archs(tmp_path):
    table = edited(TABLE, ('name = "t128"', 'name = "t64"\narch = ["sm_100f"]'), ('cost = "THREADS"', 'arch = ["sm_90a"]'))
    constants = {(variant.arch, variant.constants["THREADS"]) for variant in variants_of(tmp_path, table)}
    assert constants == {("sm_90a", 64), ("sm_100f", 128)}


def test_a_tile_of_another_arch_has_a_source_of_its_own(tmp_path):
    table = edited(TABLE, ('when = "M > 1"', 'arch = ["sm_100f"]\nsource = "other.cu"'), ('cost = "THREADS"', 'arch = ["sm_90a"]'))
    root = write_tree(tmp_path, table)
    (root / "quantize" / "kernels" / "other.cu").write_text("")
    (read,) = read_tables(root)
    sources = {(variant.arch, variant.unit().splitlines()[-1], variant.source) for variant in expand(read)}
    assert sources == {
        ("sm_90a", '#include "quantize/kernels/copy.cu"', root / "quantize/kernels/copy.cu"),
        ("sm_100f", '#include "quantize/kernels/other.cu"', root / "quantize" / "kernels" / "other.cu"),
    }
    assert read.entry["source"] == "quantize/kernels/copy.cu"


def test_two_sources_of_the_same_constants_are_two_kernels(tmp_path):
    table = edited(TABLE, ("{ THREADS = 128 }", '{ THREADS = 64 }\nsource = "other.cu"'))
    (write_tree(tmp_path, table) / "quantize" / "kernels" / "other.cu").write_text("")
    (read,) = read_tables(tmp_path)
    assert len(expand(read)) == 8


def test_two_pipelines_of_one_source_are_two_kernels_whose_units_name_them(tmp_path):
    table = edited(TABLE, ("{ THREADS = 128 }", '{ THREADS = 64 }\npipeline = "few_tokens"'))
    units = {variant.tile.name: variant.unit() for variant in variants_of(tmp_path, table)}
    assert "#define ZOO_PIPELINE FewTokens\n#include" in units["t128"]
    assert "ZOO_PIPELINE" not in units["t64"]


SEVERAL = ('dtypes = ["f32"]\nshape', 'dtypes = ["f32", "bf16"]\nshape')


def test_one_cubin_of_a_tile_takes_every_dtype_where_another_tile_has_one_for_each(tmp_path):
    table = edited(TABLE, SEVERAL, ('when = "M > 1"', 'arch = ["sm_100f"]\nuncompiled = ["x"]'), ('cost = "THREADS"', 'arch = ["sm_90a"]'))
    variants = variants_of(tmp_path, table)
    assert [(variant.arch, variant.name, variant.dtypes) for variant in variants if variant.options == {"mode": "once"}] == [
        ("sm_90a", "f32_once_t64", {"x": "f32"}),
        ("sm_90a", "bf16_once_t64", {"x": "bf16"}),
        ("sm_100f", "once_t128", {}),
    ]
    assert "using x" not in variants[-1].unit() and "using y = zoo::f32" in variants[-1].unit()


def test_a_tile_of_one_dtype_of_what_is_not_compiled_is_as_if_there_were_no_other(tmp_path):
    alone = [variant.unit() for variant in variants_of(tmp_path / "alone") if variant.tile.name == "t64"]
    table = edited(TABLE, SEVERAL, ('name = "x"\n', 'name = "x"\ncompiled = false\n'), ('cost = "THREADS"', 'dtypes = { x = ["f32"] }'))
    variants = variants_of(tmp_path / "several", table)
    assert [variant.unit() for variant in variants if variant.tile.name == "t64"] == alone
    assert {(variant.tile.name, variant.name, tuple(variant.dtypes.items())) for variant in variants} == {
        ("t64", "once_t64", (("x", "f32"),)), ("t64", "twice_t64", (("x", "f32"),)), ("t128", "once_t128", ()), ("t128", "twice_t128", ()),
    }  # fmt: skip


def test_the_unit_says_dtypes_options_constants_and_symbol(tmp_path):
    unit = variants_of(tmp_path)[3].unit()
    assert unit == (
        '#include "common/variant.cuh"\n'
        "struct Variant {\n"
        "    using x = zoo::f32;\n"
        "    using y = zoo::f32;\n"
        "    using bias = zoo::f32;\n"
        "    static constexpr auto mode = zoo::Mode::twice;\n"
        "    static constexpr int THREADS = 128;\n"
        "};\n"
        "#define ZOO_KERNEL quantize_mxfp8_rows__twice_t128\n"
        "#define ZOO_PARAMETERS const float* x, float* y, int count, int64_t stride, float alpha, const float* bias\n"
        "#define ZOO_ABSENT_PARAMETERS\n"
        '#include "quantize/kernels/copy.cu"\n'
    )


def test_defaults_are_written_out_for_the_readers(tmp_path):
    (table,) = read_tables(write_tree(tmp_path))
    launch = table.entry["launches"]["default"]
    assert (launch["cluster"], launch["programmatic"]) == (["1", "1", "1"], False)
    x, y, *_ = table.entry["arguments"]
    assert x["forms"] == [{"when": "1", "shape": ["M", "K"], "strides": ["x_stride", "1"]}]
    assert y["forms"][1] == {"when": "mode.twice", "shape": ["2", "M", "K"], "strides": None}
    assert (y["alignment"], x["optional"], x["default"]) == (4, False, None)


def test_parameters_lie_as_in_a_c_struct(tmp_path):
    table = edited(
        TABLE,
        ('"int count"', '"int count", "map x_map", "int M"'),
        ("values = {", 'values = { x_map = { tensor_map = "x", dtype = "f32", dims = ["K"], box = ["32"] },'),
    )
    (read,) = read_tables(write_tree(tmp_path, table))
    launch = read.entry["launches"]["default"]
    places = [(parameter["kind"], parameter["offset"], parameter["size"]) for parameter in launch["parameters"]]
    assert places == [
        ("pointer", 0, 8), ("pointer", 8, 8), ("i32", 16, 4), ("tensor_map", 64, 128),
        ("i32", 192, 4), ("i64", 200, 8), ("f32", 208, 4), ("pointer", 216, 8),
    ]  # fmt: skip
    assert launch["parameter_bytes"] == 224


def test_the_manifest_text_is_its_data_with_one_line_a_variant():
    variants = [{"name": f"v{index}", "sha256": "0" * 64, "long": ["word"] * 50} for index in range(3)]
    data = {"schema": 1, "kernels": {"k": {"variants": variants, "summary": "é"}}}
    text = manifest_text(data)
    assert json.loads(text) == data
    assert sum('"sha256"' in line for line in text.splitlines()) == 3
