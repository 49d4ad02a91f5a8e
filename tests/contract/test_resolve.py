"""From a call to a launch: what is bound, what is refused and in which words, what is packed."""

import dataclasses
import struct

import pytest

from tests.contract.entries import entry
from zoo.contract.array import HOST, Array
from zoo.contract.expressions import Expression
from zoo.contract.manifest import parse_kernel
from zoo.contract.resolve import pick_arch, resolve, runs_on
from zoo.contract.tensor_map import TensorMap
from zoo.errors import ArchitectureError, ArgumentError, ConstraintError, ManifestError, VariantError

NAME = "gemm.mxfp8_mxfp4.dense"
HOPPER, SMS = (9, 0), 132


@pytest.fixture(scope="module")
def kernel():
    return parse_kernel(NAME, entry())


def arguments(m=128, n=64, k=256, **changes):
    """A good call; keyword changes replace arguments, None removes them."""
    base, made = 0x10_0000_0000, {}

    def array(name, dtype, shape):
        nonlocal base
        strides, step = [], 1
        for extent in reversed(shape):
            strides.insert(0, step)
            step *= max(extent, 1)
        made[name] = Array(base, dtype, tuple(shape), tuple(strides))
        base += 0x1000_0000

    array("a", "e4m3", (m, k))
    array("b", "e2m1x2", (n, k // 2))
    array("scale", "ue8m0", (m, k // 32))
    array("d", "bf16", (m, n))
    array("scratch", "u8", (m * n * 4,))
    made.update(changes)
    return {name: value for name, value in made.items() if value is not None}


def with_(array, **changes):
    return dataclasses.replace(array, **changes)


def test_block_holds_each_parameter_at_its_offset(kernel):
    call = arguments(alpha=0.5, splits=1)
    launch = resolve(kernel, call, HOPPER, SMS)
    block = launch.logical_block()
    assert struct.unpack_from("<QQqif", block) == (0, call["d"].address, 128, 64 * 2, 0.5)
    assert struct.unpack_from("<Q", block, 32) == (call["scratch"].address,)
    assert struct.unpack_from("<QQ", block, 192) == (call["b"].address, call["scale"].address)
    assert TensorMap.from_bytes(block[64:192]) == TensorMap(
        "u8", call["a"].address, (256, 128), (256,), (128, 64), swizzle="128B", l2_promotion="256B"
    )
    assert launch.grid == (2, 1, 1) and launch.cluster == (2, 1, 1)
    assert launch.threads == 256 and launch.shared == 4096
    assert {name: offset for offset, name in launch.pointers} == {"d": 8, "scratch": 32, "b": 192, "scale": 200}


def test_a_block_that_is_to_be_alone_asks_for_all_shared_memory(kernel):
    rule = kernel.variants[0].launch
    lonely = dataclasses.replace(rule, alone=Expression("M > 64"))
    variants = [dataclasses.replace(variant, launch=lonely, static_shared=1024) for variant in kernel.variants]
    kernel = dataclasses.replace(kernel, variants=tuple(variants))
    assert [resolve(kernel, arguments(m=m), HOPPER, SMS).shared for m in (64, 65)] == [4096, 232448 - 1024]


def test_the_cheapest_fitting_variant_is_chosen(kernel):
    assert resolve(kernel, arguments(m=63), HOPPER, SMS).variant.name == "e4m3_bf16_plain_small"
    assert resolve(kernel, arguments(m=64), HOPPER, SMS).variant.name == "e4m3_bf16_plain_small"  # a tie: the first
    assert resolve(kernel, arguments(m=65), HOPPER, SMS).variant.name == "e4m3_bf16_plain_large"


def test_a_pinned_variant_is_taken(kernel):
    assert resolve(kernel, arguments(m=8), HOPPER, SMS, "e4m3_bf16_plain_large").variant.name == "e4m3_bf16_plain_large"
    with pytest.raises(VariantError, match="variant 'e5m2_bf16_plain_large'"):
        resolve(kernel, arguments(m=8), HOPPER, SMS, "e5m2_bf16_plain_large")


def test_strides_of_short_dimensions_do_not_matter(kernel):
    call = arguments(m=1, k=256)
    odd = arguments(m=1, k=256, a=with_(call["a"], strides=(77777, 1)))
    assert resolve(kernel, odd, HOPPER, SMS).logical_block() == resolve(kernel, call, HOPPER, SMS).logical_block()


def test_row_strides_reach_the_block(kernel):
    call = arguments()
    launch = resolve(kernel, {**call, "a": with_(call["a"], strides=(512, 1))}, HOPPER, SMS)
    assert launch.tensor_maps[0][2].strides == (512,)


def test_no_rows_enqueue_nothing(kernel):
    call = arguments(m=0)
    launch = resolve(kernel, {**call, "a": with_(call["a"], address=0)}, HOPPER, SMS)
    assert launch.empty and not launch.tensor_maps


def test_an_arch_may_take_fewer_dtypes_of_what_is_not_compiled():
    made = entry()
    for variant in made["variants"]:
        if variant["arch"] == "sm_90a":
            variant["dtypes"]["c"] = "f32"
    kernel = parse_kernel(NAME, made)
    f32, bf16 = (arguments(c=Array(0x99000, dtype, (128, 64), (64, 1))) for dtype in ("f32", "bf16"))
    assert resolve(kernel, f32, HOPPER, SMS).variant.arch == "sm_90a"
    assert resolve(kernel, arguments(), HOPPER, SMS).variant.arch == "sm_90a"
    with pytest.raises(VariantError, match="no variant for sm_90a takes a = e4m3, c = bf16, d = bf16, "):
        resolve(kernel, bf16, HOPPER, SMS)
    assert resolve(kernel, bf16, (10, 0), SMS).variant.arch == "sm_100f"


def test_a_cubin_that_takes_any_dtype_is_told_which_it_is():
    made = entry()
    made["variants"] = [variant for variant in made["variants"] if variant["dtypes"]["d"] == "bf16"]
    for variant in made["variants"]:
        del variant["dtypes"]["d"]
    kernel = parse_kernel(NAME, made)
    call = arguments()
    bf16, f32 = (resolve(kernel, {**call, "d": with_(call["d"], dtype=dtype)}, HOPPER, SMS) for dtype in ("bf16", "f32"))
    assert bf16.variant is f32.variant
    assert [struct.unpack_from("<i", launch.logical_block(), 24) for launch in (bf16, f32)] == [(128,), (256,)]


def test_absent_optional_argument_is_a_null_pointer_and_its_symbols_zero(kernel):
    launch = resolve(kernel, arguments(), HOPPER, SMS)
    assert launch.symbols["c_stride"] == 0 and launch.symbols["c.present"] == 0
    c = Array(0x99000, "f32", (128, 64), (64, 1))
    assert resolve(kernel, arguments(c=c), HOPPER, SMS).symbols["c_stride"] == 64


def test_dtypes_that_are_not_compiled_have_one_cubin_and_a_flag(kernel):
    f32, bf16 = (resolve(kernel, arguments(c=Array(0x99000, dtype, (128, 64), (64, 1))), HOPPER, SMS) for dtype in ("f32", "bf16"))
    assert f32.variant is bf16.variant
    assert (f32.symbols["c.bf16"], bf16.symbols["c.bf16"]) == (0, 1)
    assert (f32.symbols["c.itemsize"], bf16.symbols["c.itemsize"]) == (4, 2)
    with pytest.raises(ArgumentError, match="c: expected f32 or bf16, got f16"):
        resolve(kernel, arguments(c=Array(0x99000, "f16", (128, 64), (64, 1))), HOPPER, SMS)


def test_bytes_stand_for_the_only_type_of_one_byte(kernel):
    call = arguments()
    launch = resolve(kernel, {**call, "scale": with_(call["scale"], dtype="u8"), "b": with_(call["b"], dtype="u8")}, HOPPER, SMS)
    assert launch.logical_block() == resolve(kernel, call, HOPPER, SMS).logical_block()


def test_an_argument_of_bytes_takes_what_a_byte_can_be_and_nothing_wider(kernel):
    call = arguments()
    for dtype in ("ue8m0", "e4m3", "e2m1x2"):
        launch = resolve(kernel, {**call, "scratch": with_(call["scratch"], dtype=dtype)}, HOPPER, SMS)
        assert launch.logical_block() == resolve(kernel, call, HOPPER, SMS).logical_block()
    with pytest.raises(ArgumentError, match="scratch: expected u8, got f32"):
        resolve(kernel, {**call, "scratch": with_(call["scratch"], dtype="f32")}, HOPPER, SMS)


def test_the_form_follows_the_option(kernel):
    blocked = Array(0x77000, "ue8m0", (128, 8), (8, 1))
    assert resolve(kernel, arguments(layout="blocked", scale=blocked), HOPPER, SMS).variant.name == "e4m3_bf16_blocked_large"
    with pytest.raises(ArgumentError, match=r"scale: expected \(128, 8\) = \(round_up\(M, 128\), round_up\(K // 32, 4\)\), got \(100, 8\)"):
        resolve(kernel, arguments(layout="blocked", scale=with_(blocked, shape=(100, 8))), HOPPER, SMS)


def test_an_option_that_is_not_compiled_changes_a_number_and_not_the_variant(kernel):
    forward, backward = (resolve(kernel, arguments(order=order), HOPPER, SMS) for order in ("forward", "backward"))
    assert forward.variant is backward.variant and "order" not in forward.variant.options
    value = slice(24, 28)
    numbers = [int.from_bytes(launch.logical_block()[value], "little", signed=True) for launch in (forward, backward)]
    assert numbers == [forward.symbols["d_stride"] * 2, -forward.symbols["M"]]


A, D = arguments()["a"], arguments()["d"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (dict(e=1), "no argument is named 'e'; it takes a, b, scale, c, d, alpha, splits, scratch, layout, order"),
        (dict(a=None), "a: missing; the left operand"),
        (dict(layout="tiled"), "layout: expected plain or blocked, got 'tiled'"),
        (dict(splits=1.5), "splits: expected a whole number of 32 bits, got 1.5"),
        (dict(splits=2**31), "splits: expected a whole number of 32 bits"),
        (dict(a=with_(A, device=HOST)), "a: lies in host memory"),
        (dict(d=with_(D, readonly=True)), "d: read-only, and the kernel writes it"),
        (dict(a=with_(A, dtype="bf16")), "a: expected e4m3 or e5m2, got bf16"),
        (dict(a=with_(A, dtype="u8")), "a: expected e4m3 or e5m2, got u8; bytes could be either"),
        (dict(a=with_(A, shape=(128,), strides=(1,))), r"a: expected 2 dimensions \(M, K\), got 1"),
        (dict(a=with_(A, strides=(-256, 1))), r"a: a negative stride in \(-256, 1\)"),
        (dict(a=with_(A, address=0)), "a: a null address"),
        (dict(d=with_(D, device=1)), "d: lies on device 1, a on device 0"),
        (dict(d=with_(D, shape=(64, 128))), r"d: expected \(128, 64\) = \(M, N\), got \(64, 128\)"),
        (dict(a=with_(A, strides=(256, 2))), r"a: expected strides \(256, 1\) = \(a_stride, 1\), got \(256, 2\)"),
        (dict(b=with_(arguments()["b"], strides=(256, 1))), r"b: expected a contiguous array, got strides \(256, 1\)"),
        (dict(a=with_(A, address=A.address + 8)), r"a: the address 0x1000000008 must be a multiple of 16 bytes"),
        (dict(d=with_(D, address=A.address + 256)), "d: overlaps a, and the kernel writes d"),
        (dict(a=with_(A, strides=(264, 1))), "a: tensor map: the stride of dimension 1 is 264 bytes"),
        (
            dict(d=with_(D, address=2**44, strides=(2**31, 1))),
            r"d_stride \* d.itemsize if order.forward else -M = 4294967296 does not fit 32 bits",
        ),
    ],
)
def test_refusal_names_the_kernel_the_argument_and_what_was_expected(kernel, changes, words):
    with pytest.raises(ArgumentError, match=f"^{NAME}: {words}"):
        resolve(kernel, arguments(**changes), HOPPER, SMS)


def test_constraint_says_the_values_it_was_broken_with(kernel):
    with pytest.raises(ConstraintError, match=r"K must be a multiple of 32 \(K % 32 == 0, with K = 100\)"):
        resolve(kernel, arguments(k=100), HOPPER, SMS)


def test_columns_of_one_buffer_do_not_overlap(kernel):
    """d in the last 128 columns of rows of 512 bytes whose first 256 are a."""
    base = 0x5000000
    a = Array(base, "e4m3", (128, 256), (512, 1))
    apart = Array(base + 256, "bf16", (128, 64), (256, 1))
    meeting = Array(base + 240, "bf16", (128, 64), (256, 1))
    assert resolve(kernel, arguments(a=a, d=apart), HOPPER, SMS)
    with pytest.raises(ArgumentError, match="d: overlaps a"):
        resolve(kernel, arguments(a=a, d=meeting), HOPPER, SMS)


def test_wrong_device_names_what_is_shipped(kernel):
    with pytest.raises(ArchitectureError, match=r"no cubin for compute capability 8\.0; the zoo ships sm_90a, sm_100f"):
        resolve(kernel, arguments(), (8, 0), 108)


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("splits", (1, 65535), (True, False, "1", 1.0, object(), 2**31, -(2**31) - 1)),
        ("alpha", (0, -1.5, 3.4e38, -(2**70), float("inf")), (True, "1", [1], 3.5e38, 10**400)),
    ],
)
def test_a_scalar_is_a_number_that_fits_its_bits(kernel, name, good, bad):
    for value in good:
        launch = resolve(kernel, arguments(m=0, **{name: value}), HOPPER, SMS)
        assert launch.symbols.get("splits") == (value if name == "splits" else 1)
        assert struct.unpack_from("<f", launch.block, 28) == struct.unpack("<f", struct.pack("<f", value if name == "alpha" else 1.0))
    for value in bad:
        with pytest.raises(ArgumentError, match=f"^{NAME}: {name}: expected a (whole )?number (of|that fits) 32 bits, got "):
            resolve(kernel, arguments(m=0, **{name: value}), HOPPER, SMS)


@pytest.mark.parametrize("splits", [-(2**31), 2**31 - 1])
def test_the_last_numbers_of_32_bits_are_what_the_grid_is_refused_for(kernel, splits):
    with pytest.raises(ConstraintError, match=f"the grid's y would be {splits}, outside 0 to 65535"):
        resolve(kernel, arguments(m=0, splits=splits), HOPPER, SMS)


def test_the_arrays_of_a_call_have_spans_of_their_own(kernel):
    """By these, repeated calls are refused where arrays meet."""
    call = arguments(c=Array(0x99000, "f32", (128, 64), (100, 1)), scale=Array(0x88000, "ue8m0", (128, 8), (16, 1)))
    placement = resolve(kernel, call, HOPPER, SMS).placement
    spans = {name: (span.bytes, span.rows, span.pitch, span.row) for name, span in placement.spans.items()}
    assert spans.pop("scratch")[:2] == (128 * 64 * 4, 1)
    assert spans == {
        "a": (128 * 256, 128, 256, 256), "b": (64 * 128, 64, 128, 128), "scale": (127 * 16 + 8, 128, 16, 8),
        "c": (4 * (127 * 100 + 64), 128, 400, 256), "d": (2 * 128 * 64, 128, 128, 128),
    }  # fmt: skip
    inputs = ("a", "b", "scale", "c")
    assert set(placement.apart) == {(one, other, one) for one in ("d", "scratch") for other in inputs} | {("scratch", "d", "scratch")}
    assert placement.alignments == {"a": 16, "b": 16, "scale": 1, "c": 4, "d": 16, "scratch": 16}
    empty = resolve(kernel, arguments(m=0), HOPPER, SMS).placement
    assert set(empty.spans) == {"b"} and empty.apart == ()


def test_a_stride_over_one_element_is_free_even_where_the_form_says_it():
    made = entry()
    made["arguments"][0]["forms"][0]["strides"] = ["2 * K", "1"]
    made["launches"]["default"]["parameters"][6]["strides"] = ["2 * K"]
    kernel, call = parse_kernel(NAME, made), arguments(m=1)
    for stride in (256, 512, 7):
        assert resolve(kernel, {**call, "a": with_(call["a"], strides=(stride, 1))}, HOPPER, SMS)
    call = arguments(m=2)
    assert resolve(kernel, {**call, "a": with_(call["a"], strides=(512, 1))}, HOPPER, SMS)
    with pytest.raises(ArgumentError, match=r"a: expected strides \(512, 1\) = \(2 \* K, 1\), got \(256, 1\)"):
        resolve(kernel, call, HOPPER, SMS)


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("a", dict(shape=(-1, 256)), r"a: a negative extent in (-1, 256)"),
        ("a", dict(strides=(2**62, 1)), "a: an extent of (128, 256) with such strides does not fit 64 bits"),
        ("a", dict(address=2**63 - 128 * 256, strides=(256, 1)), "a: an extent of (128, 256) with such strides does not fit 64 bits"),
        ("a", dict(shape=(0, 2**63), strides=(1, 1)), "a: an extent of (0, 9223372036854775808) with such strides does not fit 64 bits"),
    ],
)
def test_what_overflows_is_refused_before_it_is_summed(kernel, name, changes, words):
    call = arguments()
    with pytest.raises(ArgumentError) as refusal:
        resolve(kernel, {**call, name: with_(call[name], **changes)}, HOPPER, SMS)
    assert str(refusal.value) == f"{NAME}: {words}"


def test_an_array_may_end_at_the_last_byte_of_63_bits(kernel):
    call = arguments()
    resolve(kernel, {**call, "a": with_(call["a"], address=2**63 - 128 * 256 - 16)}, HOPPER, SMS)


@pytest.mark.parametrize(
    ("arch", "yes", "no"),
    [
        ("sm_90a", [(9, 0)], [(9, 1), (8, 9), (10, 0), (1, 90)]),
        ("sm_100f", [(10, 0), (10, 3)], [(9, 0), (11, 0), (1, 0)]),
        ("sm_103f", [(10, 3), (10, 4)], [(10, 0), (10, 2)]),
        ("sm_121a", [(12, 1)], [(12, 0), (12, 2)]),
    ],
)
def test_a_class_runs_on_itself_alone_and_a_family_on_those_after_it(arch, yes, no):
    assert [runs_on(arch, capability) for capability in yes + no] == [True] * len(yes) + [False] * len(no)


@pytest.mark.parametrize(
    ("capability", "arch"), [((9, 0), "sm_90a"), ((10, 0), "sm_100a"), ((10, 3), "sm_100f"), ((11, 0), None), ((12, 1), "sm_120f")]
)
def test_exact_cubins_go_before_those_of_the_family(capability, arch):
    assert pick_arch(("sm_90a", "sm_100f", "sm_100a", "sm_120f"), capability) == arch


@pytest.mark.parametrize("path", [("launches",), ("arguments",), ("variants",), ("options",), ("constraints",)])
def test_a_broken_entry_is_a_manifest_error(path):
    broken = entry()
    del broken[path[0]]
    with pytest.raises(ManifestError, match="malformed"):
        parse_kernel(NAME, broken)


def test_two_descriptions_of_the_same_memory_are_equal_whoever_keeps_it():
    """And who does so is not printed, however large that is."""
    plain = Array(4096, "f32", (2, 3), (3, 1))
    kept = Array(4096, "f32", (2, 3), (3, 1), 0, False, object())
    assert plain == kept and hash(plain) == hash(kept) and repr(plain) == repr(kept)
    assert (plain.device, plain.readonly, plain.owner) == (0, False, None)
    for other in ({"address": 0}, {"dtype": "i32"}, {"shape": (3, 2)}, {"strides": (4, 1)}, {"device": HOST}, {"readonly": True}):
        assert dataclasses.replace(plain, **other) != plain


@pytest.mark.parametrize(("place", "offset", "bits"), [(2, 16, 64), (3, 24, 32)], ids=["i64", "i32"])
def test_a_parameter_takes_every_number_of_its_bits_and_no_other(place, offset, bits):
    def packed(value):
        made = entry()
        made["launches"]["default"]["parameters"][place]["value"] = value
        return resolve(parse_kernel(NAME, made), arguments(), HOPPER, SMS).block[offset : offset + bits // 8]

    most = 2 ** (bits - 1) - 1
    for text, value in ((str(most), most), (f"-{most} - 1", -most - 1), ("-1", -1), ("0", 0)):
        assert packed(text) == value.to_bytes(bits // 8, "little", signed=True)
    if bits == 32:  # expressions have 64 bits themselves
        for text in (str(most + 1), f"-{most} - 2"):
            with pytest.raises(ConstraintError, match=r"= -?21474836\d\d does not fit 32 bits"):
                packed(text)
