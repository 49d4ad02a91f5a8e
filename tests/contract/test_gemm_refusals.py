"""A GEMM is refused in words for every constraint it has: a call that is right but for one thing, kernel by kernel."""

import os

import pytest

from zoo.benchmark.arguments import resolve_without_device
from zoo.catalog import Zoo
from zoo.contract.array import Array
from zoo.contract.resolve import resolve
from zoo.errors import ArgumentError, ConstraintError, VariantError
from zoo.packaged import packaged

ZOO = Zoo(os.environ["ZOO_CUBINS"]) if "ZOO_CUBINS" in os.environ else packaged
KERNELS = {kernel.name: kernel for kernel in ZOO.find("gemm.fp8b128.*")}
SIZES = {"M": 256, "N": 512, "K": 256, "G": 2, "R": 64, "T": 64}
MANY = 2**31 - 512  # one more than a coordinate may be


def right_call(kernel, given=("offsets",), **changed):
    """Arrays back to back, but for what is changed: sizes, strides by their symbols, options. `given`: of the optional ones."""
    values = SIZES | {name: value for name, value in changed.items() if name in SIZES}
    M, N, K, R, _G = (values[name] for name in "MNKRG")
    blocks, columns = -(-K // 128), N // 2 if "gates" in kernel.options else N
    by_place = R if "m_grouped_masked" in kernel.name else M
    values |= {"I": N // 2, "a_stride": K, "b_stride": K, "c_stride": N, "d_stride": columns, "q_stride": columns}
    values |= {"a_group": R * changed.get("a_stride", K), "d_group": by_place * changed.get("d_stride", columns)}
    values |= {"a_scale_row": blocks, "a_scale_block": 1, "a_scale_group": R * blocks, "a_scale_stride": M, "b_scale_stride": N}
    values |= {"b_scale_row": blocks, "b_scale_block": 1, "b_scale_group": -(-N // 128) * blocks}
    values |= {"scales_row": -(-columns // 128), "scales_block": 1, "scales_group": by_place * -(-columns // 128)}
    values |= {name: value for name, value in changed.items() if name in values}
    call = {name: value for name, value in changed.items() if name not in values}
    for place, (name, argument) in enumerate(kernel.arguments.items()):
        if argument.kind == "array" and (not argument.optional or name in given):
            in_turn = name == "b" and "gates" in kernel.options and call.get("gates") == "interleaved"
            form = argument.forms[1 if in_turn else 0]
            shape = tuple(extent.evaluate(values) for extent in form.shape)
            row_major = [1]
            for extent in shape[:0:-1]:
                row_major.insert(0, row_major[0] * extent)
            strides = tuple(row_major) if form.strides is None else tuple(stride.evaluate(values) for stride in form.strides)
            call[name] = Array((1 + place) << 56, argument.dtypes[0], shape, strides)
    return call


# What is changed in a call that is right. Each kernel takes those that it has words for.
CHANGES = {
    "K that ends within 16": {"K": 264, "a_stride": 272, "b_stride": 272},
    "no K": {"K": 0, "a_stride": 16, "b_stride": 16},
    "N that ends within 8": {"N": 516, "d_stride": 520},
    "half a unit of gates and ups": {"N": 520, "gates": "interleaved", "d_stride": 264, "q_stride": 272},
    "half a unit of gates and ups, bf16": {"N": 24, "gates": "interleaved", "d_stride": 16},
    "halves whose ups begin within a scale": {"N": 544, "gates": "halves"},
    "rows of a that overlap": {"a_stride": 240},
    "rows of a between 16 bytes": {"a_stride": 264},
    "rows of b that overlap": {"b_stride": 240},
    "rows of b between 16 bytes": {"b_stride": 264},
    "rows of d that overlap": {"d_stride": 248},
    "rows of d between 16 bytes": {"d_stride": 513},
    "rows of q that overlap": {"q_stride": 240},
    "rows of q between 16 bytes": {"q_stride": 264},
    "rows of c between words": {"c_stride": 513, "given": ("c",)},
    "groups of a that overlap": {"a_group": 240},
    "groups of d that overlap": {"d_group": 1024},
    "rows of a_scale that overlap": {"a_scale_stride": 4},
    "rows of b_scale between 16 bytes": {"b_scale_stride": 514},
    "scales in one place": {"scales_row": 1},
    "groups of scales in one place": {"scales_group": 8},
    "rows past 2^31": {"M": MANY},
    "columns past 2^31": {"N": MANY + 512},
    "K past 2^31": {"K": MANY, "a_stride": MANY, "b_stride": MANY},
    "rows of all groups past 2^31": {"G": 2**20, "R": 2**11},
    "tiles past 2^31": {"M": 2**30, "N": 2**19, "G": 2, "R": 2**29},
    "tokens beyond 64 GiB": {"T": 2**30, "K": 1024, "a_stride": 1024},
    "fewer rows expected than none": {"expected_rows": -1},
    "neither offsets nor m_indices": {"given": ()},
    "offsets and m_indices": {"given": ("offsets", "m_indices")},
}


def refusal(kernel, **changed):
    try:
        resolve_without_device(kernel, right_call(kernel, **changed))
    except ConstraintError as error:
        return str(error)
    except ArgumentError:  # an option or an argument that this kernel has not
        return None
    return None


@pytest.mark.parametrize("name", KERNELS)
def test_the_call_that_is_spoilt_is_right(name):
    resolve_without_device(KERNELS[name], right_call(KERNELS[name]))


@pytest.mark.parametrize("capability", [(9, 0), (10, 0)])
@pytest.mark.parametrize("name", [name for name, kernel in KERNELS.items() if "gates" not in kernel.options and "k_grouped" not in name])
def test_no_columns_are_no_work(name, capability):
    """Every framework gives rows without elements the stride 1, which no row of d with elements may have."""
    given = ("offsets", "c") if "c" in KERNELS[name].arguments else ("offsets",)
    assert 0 in resolve(KERNELS[name], right_call(KERNELS[name], given, N=0), capability, 132).grid


@pytest.mark.parametrize("name", KERNELS)
def test_every_constraint_is_refused_in_its_words(name):
    kernel = KERNELS[name]
    heard = [said for change in CHANGES.values() if (said := refusal(kernel, **change)) is not None]
    missing = [words for _, words in kernel.constraints if not any(said.startswith(f"{name}: {words} (") for said in heard)]
    assert not missing, "add a call to CHANGES that has nothing else wrong"


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_refused_somewhere(change):
    assert any(refusal(kernel, **CHANGES[change]) for kernel in KERNELS.values())


@pytest.mark.parametrize("name", KERNELS)
def test_a_refusal_says_the_sizes_it_met(name):
    assert "_stride = 2" in refusal(KERNELS[name], **CHANGES["rows of a that overlap"])


@pytest.mark.parametrize(
    ("name", "moved"), [("gemm.fp8b128.m_grouped_gather", "t128_w256_moved"), ("gemm.fp8b128.m_grouped_gather.swiglu", "t128_moved")]
)
def test_rows_too_long_to_count_their_bytes_in_32_bits_are_not_moved(name, moved):
    kernel = KERNELS[name]
    for K in (2**27 - 128, 2**27):
        bytes_of_workspace = 16 * K + (16 * (K // 128) + 1 + 4) * 4
        call = right_call(kernel, M=16, N=256, T=1, G=1, K=K) | {"workspace": Array(1 << 62, "u8", (bytes_of_workspace,), (1,))}
        if K < 2**27:
            assert resolve(kernel, call, (9, 0), 132, moved).variant.name == moved
        else:
            with pytest.raises(VariantError, match=moved):
                resolve(kernel, call, (9, 0), 132, moved)
            assert resolve(kernel, call, (9, 0), 132).variant.name != moved
