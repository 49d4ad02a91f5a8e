"""Each limit taken to its edge: the last value that is allowed, and the first that is not."""

import dataclasses
import json
from dataclasses import replace

import pytest

from tests.contract.entries import entry
from tests.contract.test_resolve import HOPPER, NAME, SMS, arguments
from tests.emulator.core_support import kernel as ptx_kernel
from tests.integrity.test_verify_integrity import CUBINS, KERNEL
from zoo.capi import table
from zoo.contract import limits
from zoo.contract.expressions import Expression
from zoo.contract.files import is_file_name
from zoo.contract.manifest import Manifest, parse_kernel
from zoo.contract.matching import matching
from zoo.contract.resolve import resolve
from zoo.emulator import Device, Module
from zoo.errors import ArgumentError, ConstraintError, ManifestError, UnknownKernelError
from zoo.shipped import integrity
from zoo.shipped.cubin_file import read_cubin
from zoo.shipped.integrity import disagreements


def launched(**rule):
    made = entry()
    made["launches"]["default"].update(rule)
    return resolve(parse_kernel(NAME, made), arguments(), HOPPER, SMS)


@pytest.mark.parametrize(
    ("rule", "bad"),
    [
        ({"cluster": ["16", "1", "1"]}, {"cluster": ["17", "1", "1"]}),
        ({"cluster": ["1", "1", "1"]}, {"cluster": ["1", "1", "0"]}),
    ],
    ids=["cluster", "no cluster"],
)
def test_what_no_driver_can_start_is_refused_and_what_one_can_is_not(rule, bad):
    launched(**rule)
    with pytest.raises(ConstraintError, match="cannot start"):
        launched(**bad)


@pytest.mark.parametrize(
    ("good", "bad", "words"),
    [
        (["2147483647", "1", "1"], ["2147483648", "1", "1"], "the grid's x would be 2147483648, outside 0 to 2147483647"),
        (["1", "65535", "1"], ["1", "65536", "1"], "the grid's y would be 65536, outside 0 to 65535"),
        (["1", "1", "65535"], ["1", "1", "65536"], "the grid's z would be 65536, outside 0 to 65535"),
        (["0", "1", "1"], ["-1", "1", "1"], "the grid's x would be -1"),
    ],
    ids=["x", "y", "z", "negative"],
)
def test_a_grid_may_be_as_large_as_the_hardware_takes(good, bad, words):
    assert launched(grid=good, cluster=["1", "1", "1"]).grid == tuple(map(int, good))
    with pytest.raises(ConstraintError, match=words):
        launched(grid=bad, cluster=["1", "1", "1"])


@pytest.mark.parametrize(
    ("field", "good", "bad"),
    [("threads", (1, 1024), (0, 1025)), ("shared", (0, 2**31 - 1), (-1, 2**31))],
    ids=["threads", "shared memory"],
)
def test_a_manifest_holds_no_number_that_a_launch_cannot_have(field, good, bad):
    def parsed(value):
        made = entry()
        made["variants"][0][field] = value
        return parse_kernel(NAME, made)

    for value in good:
        assert getattr(parsed(value).variants[0], field) == value
    for value in bad:
        with pytest.raises(ManifestError, match=rf"variants\[0\]\.{field} is {value}"):
            parsed(value)


def of_packaged(launch: dict, variant_says: dict):
    """What a cubin says to a manifest that starts it otherwise."""
    data = json.loads((CUBINS / "manifest.json").read_text())["kernels"][KERNEL]
    data["launches"]["default"].update(launch)
    data["variants"][0].update(variant_says)
    kernel = parse_kernel(KERNEL, data)
    variant = kernel.variants[0]
    return disagreements(kernel, variant, (CUBINS / variant.file).read_bytes())


def problem(words: str, launch: dict, **variant_says) -> bool:
    return any(words in one for one in of_packaged(launch, variant_says))


def test_a_cubin_is_started_with_the_threads_it_was_compiled_for():
    compiled = Manifest(CUBINS / "manifest.json").kernel(KERNEL).variants[0].threads
    for threads, wrong in ((compiled - 1, True), (compiled, False), (compiled + 1, True)):
        assert problem(f"started with {threads} threads, compiled for", {}, threads=threads) == wrong


def test_a_cta_has_227_kib_of_shared_memory():
    static = Manifest(CUBINS / "manifest.json").kernel(KERNEL).variants[0].static_shared
    for shared, wrong in ((232448 - static, False), (232449 - static, True)):
        assert problem("bytes of shared memory", {}, shared=shared) == wrong


def test_a_parameter_block_ends_where_its_last_parameter_does():
    kernel = Manifest(CUBINS / "manifest.json").kernel(KERNEL)
    variant = kernel.variants[0]
    compiled = read_cubin((CUBINS / variant.file).read_bytes()).kernels[variant.symbol]
    for more, said in ((0, []), (8, ["the parameter block has {0} bytes by the table, {1} in the kernel"])):
        longer = replace(compiled, parameter_bytes=compiled.parameter_bytes + more)
        expected = [one.format(compiled.parameter_bytes, longer.parameter_bytes) for one in said]
        assert integrity._parameter_problems(variant, longer) == expected
    moved = replace(compiled.parameters[-1], offset=compiled.parameters[-1].offset + 4)
    (one,) = integrity._parameter_problems(variant, replace(compiled, parameters=(*compiled.parameters[:-1], moved), parameter_bytes=0))
    assert one.startswith(f"parameter {len(compiled.parameters) - 1} (") and one.endswith(
        f"{moved.size} bytes at {moved.offset} in the kernel"
    )


def test_a_cluster_has_1_to_16_ctas():
    for cluster, wrong in (("16", False), ("17", True), ("0", True), ("1", False)):
        assert problem("CTAs, expected 1 to 16", {"cluster": [cluster, "1", "1"]}) == wrong
    assert problem("a cluster of 2x3x3 CTAs", {"cluster": ["2", "3", "3"]}) and not problem(
        "expected 1 to 16", {"cluster": ["2", "4", "2"]}
    )


@pytest.mark.parametrize(
    ("threads", "registers", "wrong"),
    [(1024, 64, False), (1024, 65, True), (896, 72, False), (897, 72, True), (256, 255, False), (257, 248, True), (1024, 57, False)],
)
def test_registers_of_a_cta_are_65536(threads, registers, wrong):
    """Threads count in warps of 32 and registers in eights."""
    data = json.loads((CUBINS / "manifest.json").read_text())["kernels"][KERNEL]
    data["variants"][0]["threads"] = threads
    kernel = parse_kernel(KERNEL, data)
    variant = kernel.variants[0]
    cubin = read_cubin((CUBINS / variant.file).read_bytes()).kernels[variant.symbol]
    compiled = dataclasses.replace(cubin, registers=registers, max_threads=None)
    assert any("a CTA has 65536" in one for one in integrity._launch_problems(kernel, variant, compiled)) == wrong


def test_expressions_fit_64_bits_to_the_last():
    for text, value in (("9223372036854775807", 2**63 - 1), ("-9223372036854775807 - 1", -(2**63)), ("M + 1", 2**63 - 1)):
        assert Expression(text).evaluate({"M": 2**63 - 2}) == value
    for text in ("9223372036854775808", "9223372036854775807 + 1", "-9223372036854775807 - 2"):
        with pytest.raises(Exception, match="64 bits"):
            Expression(text).evaluate({})


def test_a_file_name_has_at_most_240_ascii_characters():
    assert is_file_name("x" * 240) and not is_file_name("x" * 241)
    assert is_file_name("sm_90a/Kernel-1.b_2.cubin") and not is_file_name("sm_90a/kernél.cubin")


@pytest.mark.parametrize("name", ["größe", "gemm_é", "名前", "a b", "", "1a", "A", "a.b"])
def test_names_are_ascii(name):
    made = entry()
    made["arguments"][5]["name"] = name
    with pytest.raises(ManifestError, match="name"):
        parse_kernel(NAME, made)


def test_the_last_expression_that_c_can_number_is_taken(monkeypatch):
    kernel = parse_kernel(NAME, entry())
    files = {variant.file: index for index, variant in enumerate(kernel.variants)}
    written = table._Writer(kernel, kernel.variants, 0)
    written.write(0, files)
    count = len(written.parsed)
    monkeypatch.setattr(table, "MOST_EXPRESSIONS", count)
    table.kernel_tables(kernel, kernel.variants, 0, 0, files)
    monkeypatch.setattr(table, "MOST_EXPRESSIONS", count - 1)
    with pytest.raises(ManifestError, match="expressions"):
        table.kernel_tables(kernel, kernel.variants, 0, 0, files)


@pytest.mark.parametrize(("count", "misuse"), [(2, True), (3, False)], ids=["the last arrival", "one before the last"])
def test_an_arrive_that_may_not_complete_is_found_where_it_does(count, misuse):
    """.noComplete promises that the phase goes on; the other thread's arrival ends it otherwise."""
    rest = "mbarrier.arrive.shared.b64 %rd4, [%r1], 1;" * (count - 2)
    body = f"""
        mov.u32 %r1, bar;
        mbarrier.init.shared.b64 [%r1], {count};
        mbarrier.arrive.shared.b64 %rd2, [%r1], 1;
        mbarrier.arrive.noComplete.release.cta.shared.b64 %rd3, [%r1], 1;
        {rest}
        WAIT: mbarrier.try_wait.parity.shared.b64 %p1, [%r1], 0;
        @!%p1 bra WAIT;
        mbarrier.inval.shared.b64 [%r1];
    """
    module = Module(ptx_kernel(body, parameters=0, shared=".shared .align 8 .b64 bar;"))
    report = Device(arch="sm_90a", scheduling="issue").launch(module, "k", 1, 1)
    found = [finding for finding in report.findings if "noComplete" in finding.message]
    assert bool(found) == misuse, report


def test_limits_are_what_the_hardware_has():
    assert (limits.GRID, limits.THREADS, limits.CLUSTER) == ((2**31 - 1, 65535, 65535), 1024, 16)
    assert (limits.REGISTERS, limits.SHARED, limits.RESERVED_SHARED) == (65536, 227 * 1024, 1024)


@pytest.mark.parametrize(("dtype", "bits"), [("i32", 32), ("i64", 64)])
def test_a_default_is_one_of_all_the_numbers_of_its_dtype(dtype, bits):
    def parsed(value):
        made = entry()
        made["arguments"][6].update(dtypes=[dtype], default=value)
        return parse_kernel(NAME, made).arguments["splits"].default

    most = 2 ** (bits - 1) - 1
    for value in (most, -most - 1, 0, -1, None):
        assert parsed(value) == value
    for value in (most + 1, -most - 2, 1.0, True):
        with pytest.raises(ManifestError, match="default"):
            parsed(value)


def test_what_is_written_for_a_kernel_means_a_name_before_a_pattern_before_a_part():
    names = ["a.b", "a.bc", "c"]
    for written, found in (("a.b", ["a.b"]), ("b", ["a.b", "a.bc"]), ("a.*", ["a.b", "a.bc"]), ("?", ["c"]), ("[cd]", ["c"]), ("d", [])):
        assert matching(written, names) == found
    with pytest.raises(UnknownKernelError, match="an empty word names no kernel"):
        matching("", names)


def test_an_expression_is_known_where_each_of_its_names_is():
    assert integrity._known(Expression("A + B"), {"A": 2, "B": 3}) == 5 and integrity._known(Expression("4"), {}) == 4
    assert integrity._known(Expression("A + B"), {"A": 2, "C": 3}) is None


def test_an_array_of_nothing_may_lie_at_the_last_address_and_no_further():
    kernel, call = parse_kernel(NAME, entry()), arguments(m=0)
    last = 2**63 - 16
    resolve(kernel, {**call, "a": replace(call["a"], address=last)}, HOPPER, SMS)
    with pytest.raises(ArgumentError, match=r"a: an extent of \(0, 256\) with such strides does not fit 64 bits"):
        resolve(kernel, {**call, "a": replace(call["a"], address=2**63)}, HOPPER, SMS)
