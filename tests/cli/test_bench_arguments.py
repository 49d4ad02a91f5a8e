"""A call made from sizes alone is one that the loader takes, for kernels of every kind."""

import importlib.util
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy
import pytest

from tests.contract.entries import entry
from zoo.benchmark.arguments import Described, describe_arguments, elements_in, named_sizes, size_symbols, symbols_of_arguments
from zoo.benchmark.groups import DISTRIBUTIONS, Groups
from zoo.benchmark.product import product_of
from zoo.benchmark.record import line_of, timings
from zoo.benchmark.shapes import usual_shapes
from zoo.cli import bench
from zoo.contract.array import Array
from zoo.contract.manifest import parse_kernel
from zoo.contract.resolve import resolve
from zoo.errors import ArgumentError
from zoo.packaged import packaged
from zoo.shipped.evidence import evidence_of

GEMM = parse_kernel("gemm.fp8b128.dense", entry("gemm.fp8b128.dense"))


def resolved(kernel, numbers, settings, groups=None, capability=(9, 0)):
    arrays, keywords = describe_arguments(kernel, named_sizes(kernel, numbers), settings, groups)
    address, arguments = 1 << 40, dict(keywords)
    for name, one in arrays.items():
        arguments[name] = Array(address, one.dtype, one.shape, one.strides)
        address += -(-one.bytes // 256) * 256
    return arrays, resolve(kernel, arguments, capability, 132)


@pytest.mark.parametrize("layout", ["plain", "blocked"])
def test_a_gemm_with_packed_weights_a_workspace_and_an_absent_argument(layout):
    arrays, launch = resolved(GEMM, (100, 64, 256), {"layout": layout, "d": "f32", "splits": "3"})
    assert size_symbols(GEMM) == ("M", "N", "K")
    assert "c" not in arrays
    assert arrays["b"].shape == (64, 128)
    assert arrays["scale"].shape == ((100, 8) if layout == "plain" else (128, 8))
    assert arrays["scratch"].shape == (3 * 100 * 64 * 4,) and arrays["scratch"].written
    assert arrays["d"].bytes == 100 * 64 * 4
    assert launch.variant.name == f"e4m3_f32_{layout}_large" and launch.grid[1] == 3


def test_an_optional_argument_is_there_once_its_dtype_is_chosen():
    arrays, launch = resolved(GEMM, (100, 64, 256), {"d": "f32", "splits": "3", "c": GEMM.arguments["c"].dtypes[0]})
    assert "c" in arrays and launch.symbols["c.present"] == 1


def test_every_kernel_of_the_zoo_at_its_usual_shapes():
    for kernel in packaged.find():
        for shape in usual_shapes(kernel):
            _, launch = resolved(kernel, shape, {}, capability=(9, 0) if "sm_90a" in kernel.archs else (10, 0))
            assert not launch.empty


def test_sizes_of_every_kernel_come_in_the_order_m_n_k():
    order = ("M", "R", "N", "I", "K", "C")
    for kernel in packaged.find():
        places = [order.index(symbol) for symbol in size_symbols(kernel) if symbol in order]
        assert places == sorted(places), (kernel.name, size_symbols(kernel))
        assert not {"KB", "CODES", "S", "ALPHAS"} & set(size_symbols(kernel)), (kernel.name, size_symbols(kernel))


def test_k_counts_elements_where_a_byte_holds_two():
    for name in ("gemm.nvfp4.dense", "gemm.mxfp4.dense", "gemm.fp8_mxfp4.dense.stored"):
        kernel = packaged.kernel(name)
        arrays, _ = describe_arguments(kernel, named_sizes(kernel, (64, 4096, 7168)), {})
        assert arrays["b"].shape[-1] == 3584, name
    with pytest.raises(ArgumentError, match="K = 7167 is odd, and a byte holds two elements"):
        describe_arguments(packaged.kernel("gemm.nvfp4.dense"), {"M": 64, "N": 4096, "K": 7167}, {})


def test_every_recorded_line_keeps_its_key():
    evidence, other_names = evidence_of(packaged.directory), (" Q=", "COLUMNS=")
    seen = 0
    for kernel in packaged.find():
        for variant in kernel.variants:
            for line in timings(evidence, kernel, variant):
                words = dict(word.split("=") for word in line.split())
                sizes = {name: int(words.pop(name)) for name in symbols_of_arguments(kernel) if name in words}
                if set(sizes) != set(symbols_of_arguments(kernel)) or any(name in line for name in other_names):
                    continue  # recorded under names that the table had before
                of_bytes = [sizes[one] * elements_in(kernel, one) for one in ("KB", "CODES") if one in sizes]
                given = sizes | ({"K": of_bytes[0]} if of_bytes else {})
                found = line_of(kernel, variant, {**{name: given[name] for name in size_symbols(kernel)}, **words})
                assert sorted(found.removeprefix(f"kernel={kernel.name} ").split()) == sorted(line.split())
                seen += 1
    assert seen > 1000


def test_a_recorded_timing_keeps_its_name_whatever_order_people_read():
    kernel = packaged.kernel("gemm.fp8b128.dense")
    owned = next(one for one in kernel.variants if one.symbol.startswith("gemm_fp8b128_dense__"))
    assert line_of(kernel, owned, {"M": 1, "N": 2, "K": 3, "b_constant": "yes"}) == "M=1 K=3 N=2 b_constant=yes"


def test_a_kernel_without_usual_sizes_asks_for_a_shape():
    with pytest.raises(ArgumentError, match="has no usual shapes; give --shape"):
        usual_shapes(replace(GEMM, fields={"op": "scale_rows"}))


def test_wrong_sizes_and_settings_are_refused():
    with pytest.raises(ArgumentError, match="a shape is M,N,K, got 1,2"):
        named_sizes(GEMM, (1, 2))
    with pytest.raises(ArgumentError, match=r"splits is a number \(i32\), not 'many'"):
        describe_arguments(GEMM, {"M": 1, "K": 32, "N": 8}, {"splits": "many"})


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("count", [1, 8, 64, 256])
def test_groups_own_all_rows_and_offsets_rise(count, distribution):
    offsets = Groups(count, distribution).offsets(8192)
    sizes = numpy.diff(offsets, prepend=0)
    assert offsets.dtype == numpy.int32 and len(offsets) == count and offsets[-1] == 8192
    assert (sizes >= 0).all()
    assert (sizes == 0).sum() == (count - -(-count // 8) if distribution == "empty" else 0)


def test_the_recorder_times_every_variant_that_a_gpu_runs():
    path = Path(__file__).parents[2] / "tools" / "record_benchmarks.py"
    spec = importlib.util.spec_from_file_location("record_benchmarks", path)
    recorder = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(recorder)
    hopper = SimpleNamespace(capability=(9, 0), multiprocessors=132)
    for name in packaged.manifest.names:
        kernel = packaged.kernel(name)
        if kernel.fields["op"] != "gemm":
            timed = {call[0].name for call in recorder.calls(kernel, hopper) if recorder.takes(kernel, hopper, *call)}
            assert timed == {variant.name for variant in kernel.variants if variant.arch == "sm_90a"}


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_groups_along_k_begin_where_a_tensor_copy_can(distribution):
    for count, rows in ((64, 5000), (3, 40), (5, 16)):
        plain, stepped = (Groups(count, distribution).offsets(rows, step) for step in (1, 16))
        assert stepped[-1] == plain[-1] == rows and (numpy.diff(stepped) >= 0).all() and (numpy.diff(plain) >= 0).all()
        assert all(end % 16 == 0 or end == rows for end in stepped)
        assert (abs(stepped - plain) <= 16).all()


def test_places_of_a_masked_product_are_full_or_it_would_time_nothing():
    kernel = packaged.kernel("gemm.fp8b128.m_grouped_masked")
    arrays, _ = resolved(kernel, (6, 20, 128, 256), {})
    assert arrays["rows"].content.tolist() == [20] * 6 and arrays["rows"].content.dtype == numpy.int32


@pytest.mark.parametrize(("settings", "expected"), [({}, 192), ({"expected_rows": "0"}, 0), ({"expected_rows": "7"}, 7)])
def test_full_places_are_expected_or_their_times_would_be_of_a_tile_for_few_rows(settings, expected):
    kernel = packaged.kernel("gemm.fp8b128.m_grouped_masked")
    _, keywords = describe_arguments(kernel, named_sizes(kernel, (6, 192, 128, 256)), settings)
    assert keywords["expected_rows"] == expected


def test_groups_of_a_product_are_told_by_offsets_unless_each_row_says_its_own():
    kernel = packaged.kernel("gemm.fp8b128.m_grouped_contiguous")
    arrays, _ = resolved(kernel, (100, 128, 256), {}, Groups(8, "zipf"))
    by_row, _ = resolved(kernel, (100, 128, 256), {"m_indices": "i32"}, Groups(8, "zipf"))
    assert "m_indices" not in arrays and "offsets" not in by_row and arrays["b"].shape == by_row["b"].shape == (8, 128, 256)
    sizes = numpy.diff(arrays["offsets"].content, prepend=0)
    assert by_row["m_indices"].content.tolist() == numpy.repeat(numpy.arange(8), sizes).tolist()


def test_rows_gathered_for_a_product_are_those_there_are():
    kernel = packaged.kernel("gemm.fp8b128.m_grouped_gather")
    arrays, _ = resolved(kernel, (30, 100, 128, 256), {}, Groups(8))
    assert (
        arrays["a"].shape == (30, 256) and set(arrays["index"].content.tolist()) == set(range(30)) and len(arrays["index"].content) == 100
    )


@pytest.mark.parametrize(
    ("name", "numbers", "product"),
    [
        ("gemm.fp8b128.dense", (100, 128, 256), (100, 128, 256)),
        ("gemm.fp8b128.m_grouped_contiguous", (100, 128, 256), (100, 128, 256)),
        ("gemm.fp8b128.m_grouped_masked", (6, 20, 128, 256), (120, 128, 256)),
        ("gemm.fp8b128.m_grouped_gather", (30, 100, 128, 256), (100, 128, 256)),
        ("gemm.fp8b128.k_grouped", (64, 128, 1024), (64, 128, 1024)),
        ("quantize.mxfp8.rows", (100, 256), None),
    ],
)
def test_the_arithmetic_of_all_groups_counts(name, numbers, product):
    kernel = packaged.kernel(name)
    arrays, _ = resolved(kernel, numbers, {}, Groups(8) if "offsets" in kernel.arguments else None)
    seen = product_of(kernel, arrays)
    assert (seen and (seen.M, seen.N, seen.K)) == product
    assert (seen.operations if seen else 0) == (2 * numpy.prod(product) if product else 0)


def test_groups_of_a_product_end_where_its_offsets_or_places_say():
    contiguous, masked = (packaged.kernel(f"gemm.fp8b128.m_grouped_{how}") for how in ("contiguous", "masked"))
    arrays, _ = resolved(contiguous, (100, 128, 256), {}, Groups(4))
    assert product_of(contiguous, arrays).ends == (25, 50, 75, 100)
    arrays, _ = resolved(masked, (3, 20, 128, 256), {})
    assert product_of(masked, arrays).ends == (20, 40, 60)


def test_a_byte_of_two_elements_counts_as_two_of_k():
    kernel = SimpleNamespace(name="gemm.mxfp4.dense", fields={"op": "gemm", "grouping": "dense"})
    kernel.arguments = {"a": SimpleNamespace(dtypes=("e2m1x2",))}
    arrays = {"a": Described((100, 128), "e2m1x2", False), "b": Described((64, 128), "e2m1x2", False)}
    seen = product_of(kernel, arrays)
    assert (seen.M, seen.N, seen.K) == (100, 64, 256) and seen.operations == 2 * 100 * 64 * 256


@pytest.mark.parametrize(
    ("extra", "result"), [("", "d"), ("stored", "d"), ("swiglu", "d"), ("swiglu_fp8b128", "q"), ("swiglu_fp8b128_stored", "q")]
)
def test_of_packed_gates_and_ups_two_columns_count_for_one_of_the_result(extra, result):
    kernel = SimpleNamespace(name="", fields={"op": "gemm", "grouping": "dense", "extra": extra}, arguments={})
    width = 96 if extra.startswith("swiglu") else 192
    arrays = {
        "a": Described((7, 128), "e4m3", False),
        "b": Described((3, 2, 2304), "u8", False),
        result: Described((7, width), "bf16", True),
    }
    seen = product_of(kernel, arrays)
    assert (seen.M, seen.N, seen.K) == (7, 192, 128)


def test_columns_in_several_axes_are_columns():
    kernel = SimpleNamespace(fields={"op": "gemm", "grouping": "m_grouped_contiguous", "extra": "swiglu_fp8b128"})
    arrays = {"a": Described((7, 2, 64), "e4m3", False), "b": Described((5, 3, 2, 2, 1088), "u8", False)}
    arrays["q"] = Described((7, 3, 64), "e4m3", True)
    seen = product_of(kernel, arrays)
    assert (seen.M, seen.N, seen.K) == (7, 384, 128)


@pytest.mark.parametrize("given", ["layout", "=blocked", "layout=", "="])
def test_a_setting_without_a_name_or_a_value_is_refused_as_it_was_written(zoo_command, given):
    said = zoo_command("bench", GEMM.name, "--set", "splits=3", "--set", given)
    assert said.exit_code == 2 and f"splits=3, {given}: expected NAME=VALUE, such as layout=blocked" in " ".join(said.stderr.split())


def test_settings_are_cut_at_their_first_sign():
    assert (
        bench._settings(None, None, ("layout=blocked", "a=b=c")) == {"layout": "blocked", "a": "b=c"}
        and bench._settings(None, None, ()) == {}
    )


@pytest.mark.parametrize(
    "arguments",
    [["--set", "d=" + "d" * 100_000], ["--set", "d" * 100_000 + "=f32"], ["--set", "d" * 100_000], ["--shape", "9" * 5000], ["--shape", "x" * 5000]],
    ids=["value", "name", "no pair", "digits", "letters"],
)  # fmt: skip
def test_what_was_typed_is_not_echoed_at_length(zoo_command, arguments):
    said = zoo_command("bench", GEMM.name, *arguments)
    assert said.exit_code in (1, 2) and len(said.output) < 1000 and "..." in said.output
