"""`zoo show`: a screen that says how to call a kernel, a call that runs, and the whole contract for whoever asks."""

import json
from dataclasses import replace

import numpy
import pytest

import zoo
from zoo.benchmark.arguments import size_symbols
from zoo.cli import contract
from zoo.cli.example_call import example_call
from zoo.cli.overview import overview
from zoo.contract.archs import family_of
from zoo.contract.array import Array
from zoo.contract.expressions import Expression
from zoo.contract.manifest import parse_kernel
from zoo.contract.resolve import resolve
from zoo.emulator.plan import EmulatedPlan
from zoo.packaged import packaged
from zoo.shipped.evidence import Evidence

NAME = "quantize.mxfp8.rows"
NAMES = packaged.manifest.names
# One of each kind of input: plain, scales of a tensor and workspace, offsets, an index, places of rows, packed 4-bit codes.
CHEAP = (
    NAME, "quantize.nvfp4.rows.amax", "quantize.fp8b128.rows.m_grouped_contiguous", "gemm.fp8b128.m_grouped_gather",
    "gemm.fp8b128.m_grouped_masked", "dequantize.mxfp4.rows", "scales.mn_major",
)  # fmt: skip


def words(text):
    return " ".join(text.split())


@pytest.mark.parametrize(("columns", "most"), [(80, 48), (100, 46)])
def test_every_kernel_fits_a_screen_and_names_all_that_a_caller_gives(monkeypatch, columns, most):
    monkeypatch.setenv("COLUMNS", str(columns))
    evidence = Evidence(packaged.directory)
    for kernel in packaged.find():
        text = overview(kernel, evidence)
        lines = text.splitlines()
        assert len(lines) <= most, f"{kernel.name}: {len(lines)} lines"
        given = [line.split() for line in lines if line.startswith("  ")]
        for argument in kernel.arguments.values():
            assert [argument.name, argument.access, *argument.dtypes[:1]] in [line[:3] for line in given], (kernel.name, argument.name)
        for name, option in kernel.options.items():
            assert [name, "option", option.default] in [line[:3] for line in given], (kernel.name, name)
        for arch in kernel.archs:
            assert any(line.startswith(f"{family_of(arch)} ") and f" {arch}, " in line for line in lines)
        assert "--arguments" in text and lines[-1] == "print(result.numpy())"
        assert f"--shape {','.join(size_symbols(kernel))} " in text


def test_rules_that_find_no_room_are_counted(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    hidden = 0
    for kernel in packaged.find()[::10]:
        text, rules = words(overview(kernel, Evidence(packaged.directory))), [rule for _, rule in kernel.constraints]
        needs = text.partition("needs ")[2].partition(" promises ")[0].partition(" Hopper sm_")[0].partition(" Blackwell sm_")[0]
        if needs.startswith(f"{len(rules)} rule"):
            hidden += len(rules)
            continue
        said = next(shown for shown in range(len(rules), -1, -1) if needs.startswith("; ".join(rules[:shown])))
        hidden += len(rules) - said
        assert needs == "; ".join(rules) if said == len(rules) else needs.endswith(f"; {len(rules) - said} more, which --arguments prints")
    assert hidden, "all rules fit: this test saw nothing"


def test_the_call_of_every_kernel_is_one_that_the_loader_takes(monkeypatch):
    """Its quantisers run, each call once for all kernels; the kernel itself is resolved and checked, and found in the PTX, but not run."""
    made, run, devices, real = {}, EmulatedPlan.run, {}, zoo.emulator.Device
    under_test, resolved = [""], []

    def remembered(self, stream=None):
        if self.launch.kernel == under_test[0]:
            resolved.append(self.launch)
            return
        run(self, stream)

    def call(name, **arguments):
        if name == under_test[0]:
            return packaged.call(name, **arguments)
        key = (name, *((key, getattr(one, "shape", one), str(getattr(one, "device", ""))) for key, one in arguments.items()))
        if key not in made:
            made[key] = packaged.call(name, **arguments)
        return made[key]

    monkeypatch.setattr(EmulatedPlan, "run", remembered)
    monkeypatch.setattr(zoo.emulator, "Device", lambda arch: devices.setdefault(arch, real(arch)))
    monkeypatch.setattr(zoo, "call", call)
    for kernel in packaged.find():
        under_test[0] = kernel.name
        program, _, last = example_call(kernel, 80).rpartition("\n")
        exec(program, {})
        assert last == "print(result.numpy())" and resolved[-1].variant in kernel.variants and not resolved[-1].empty
    assert [one.kernel for one in resolved] == list(NAMES)


@pytest.mark.parametrize("columns", [80, 100])
def test_no_line_of_a_call_is_wider_than_the_terminal(columns):
    for kernel in packaged.find():
        for line in example_call(kernel, columns).splitlines():
            assert len(line) <= columns, line


@pytest.mark.parametrize("name", ["gemm.fp8b128.dense", "gemm.nvfp4.dense", "gemm.fp8_mxfp4.dense"])
def test_operands_are_numbers_that_a_product_is_near_to(name):
    """The quantised product of the example's random matrices, beside their product in float32."""
    program, seen = example_call(packaged.kernel(name), 100), {}
    assert "numpy.ones(1," in program or "ones" not in program
    program = program.replace("def normal(*shape): return array(", "def normal(*shape): return kept(").replace(
        "array = gpu.array", KEEPING, 1
    )
    exec(program.rpartition("\n")[0], seen)
    a, b = (matrix.astype(numpy.float32) for matrix in seen["matrices"])
    error = numpy.linalg.norm(seen["result"].numpy().astype(numpy.float32) - a @ b.T) / numpy.linalg.norm(a @ b.T)
    assert 0.001 < error < 0.2


KEEPING = """array = gpu.array
matrices = []
def kept(matrix):
    matrices.append(matrix)
    return array(matrix)
"""


@pytest.mark.parametrize("columns", [60, 100])
@pytest.mark.parametrize("name", CHEAP)
def test_what_show_prints_last_runs_when_it_is_pasted(zoo_command, monkeypatch, capsys, name, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    text = zoo_command("show", name).output
    exec(text[text.index("# a call to paste") :], {})
    assert "[" in capsys.readouterr().out


def test_the_call_says_how_it_is_made_on_a_gpu_with_names_that_exist(zoo_command):
    text = zoo_command("show", NAME).output
    assert "on a GPU: array = zoo.to_device" in text and callable(zoo.to_device)


def test_the_call_of_another_zoo_is_of_that_zoo(zoo_command, cubins, capsys):
    text = zoo_command("--cubins", cubins, "show", "scales.mn_major").output
    assert f"own = zoo.Zoo({str(cubins)!r})" in text and "own.call(" in text
    exec(text[text.index("# a call to paste") :], {})
    assert "[" in capsys.readouterr().out


def test_a_kernel_of_unknown_sizes_is_shown_without_a_call():
    from tests.contract.entries import entry

    known = parse_kernel("gemm.mxfp8_mxfp4.dense", entry())
    assert "zoo.call(" in example_call(known, 80)
    data = entry()
    data["constraints"] = [{"expression": "K == 77", "words": "K must be 77"}]
    text = example_call(parse_kernel("gemm.mxfp8_mxfp4.dense", data), 80)
    assert text.startswith("# no example: ") and "K must be 77" in words(text.replace("#", "")) and "call(" not in text
    assert all(line.startswith("# ") for line in text.splitlines())


def test_an_odd_manifest_is_shown_or_refused_and_nothing_else():
    import random

    from tests.contract.test_malformed_entries import NAME as of
    from tests.contract.test_malformed_entries import mutated
    from zoo.errors import ManifestError

    pick, shown = random.Random(7), 0
    for _ in range(600):
        try:
            kernel = parse_kernel(of, mutated(pick))
        except ManifestError:
            continue
        assert overview(kernel, Evidence(packaged.directory)).startswith(of)
        shown += 1
    assert shown > 20


def test_the_whole_contract_has_every_argument_option_parameter_and_constraint(zoo_command):
    text = zoo_command("show", NAME, "--arguments", "--parameters", "--variants").output
    kernel = packaged.kernel(NAME)
    for needed in (*kernel.arguments, *kernel.options, *kernel.archs, kernel.source, kernel.table):
        assert needed in text
    for expression, rule in kernel.constraints:
        assert rule in words(text) and expression.text in words(text)
    for parameter in kernel.variants[0].launch.parameters:
        assert f"{parameter.offset} {parameter.size} {parameter.kind}" in words(text)
    for argument in kernel.arguments.values():
        assert words(argument.help)[:20] in words(text)


def test_a_launch_rule_that_finds_no_room_goes_on_under_its_first_extent(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    rule = packaged.kernel(NAME).variants[0].launch
    extents = tuple(Expression(f"first_{name} + second_{name}") for name in "abc")
    text = contract.launch_text(replace(rule, grid=extents, cluster=extents))
    assert text.startswith(
        "  grid     first_a + second_a, first_b +\n"
        "           second_b, first_c + second_c\n"
        "  cluster  first_a + second_a, first_b +\n"
        "           second_b, first_c + second_c\n"
    )


@pytest.mark.parametrize(
    ("option", "there", "not_there"),
    [
        ("--arguments", "constraints", "parameter block"),
        ("--parameters", "parameter block", "constraints"),
        ("--variants", "registers", "constraints"),
    ],
)
def test_a_part_of_the_contract_comes_alone(zoo_command, option, there, not_there):
    text = zoo_command("show", NAME, option).output
    assert text.startswith(NAME) and there in text and not_there not in text and "zoo.call" not in text


def test_json_is_the_manifest_entry(zoo_command):
    data = json.loads(zoo_command("show", NAME, "--json").output)
    kernel = packaged.kernel(NAME)
    assert [argument["name"] for argument in data["arguments"]] == list(kernel.arguments)
    assert data["launches"][0]["parameter_bytes"] == kernel.variants[0].launch.parameter_bytes
    assert [variant["sha256"] for variant in data["variants"]] == [variant.sha256 for variant in kernel.variants]
    assert data["sizes"] == ["M", "K"]


def test_json_is_indented_by_one(zoo_command):
    assert zoo_command("show", NAME, "--json").output.startswith('{\n "')


def test_a_name_gives_one_object_and_anything_else_a_list_even_of_one(zoo_command):
    several = json.loads(zoo_command("show", "quantize.*.rows", "--json").output)
    assert [one["name"] for one in several] == [
        f"quantize.{formats}.rows" for formats in ("fp8b128", "fp8token", "mxfp4", "mxfp8", "nvfp4")
    ]
    (only,) = json.loads(zoo_command("show", "mxfp8.rows.swiglu", "--json").output)
    assert only["name"] == "quantize.mxfp8.rows.swiglu"


def test_a_misspelt_kernel_is_told_which_was_meant(zoo_command):
    result = zoo_command("show", "quantise.mxfp8.rows")
    assert result.exit_code == 1
    assert result.output.startswith("Error: no kernel is named 'quantise.mxfp8.rows'; did you mean quantize.mxfp8.rows")


def test_the_lines_of_a_constraint_stand_below_their_heading_alike():
    text = contract.arguments_text(packaged.manifest.kernel("gemm.fp8b128.dense"))
    below = text.partition("\nconstraints\n")[2].partition("\n\n")[0].splitlines()
    assert len(below) > 3 and {len(line) - len(line.lstrip()) for line in below} == {2, 4}  # 4: what goes on


def test_numbers_that_are_all_alike_are_no_range():
    assert contract._range([3, 3]) == "3" and contract._range([5, 3, 4]) == "3-5"


def test_rules_take_the_lines_that_are_left_of_a_screen_and_not_one_more(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    evidence = Evidence(packaged.directory)
    for name in ("quantize.mxfp8.rows", "scales.mn_major"):
        kernel = packaged.kernel(name)
        rule, lines = kernel.constraints[0][0], overview(replace(kernel, constraints=()), evidence).count("\n") + 1
        for count, shown in ((40 - lines, 40 - lines), (41 - lines, 40 - lines), (60, 40 - lines)):
            text = overview(replace(kernel, constraints=tuple((rule, f"{n:02}".ljust(40, ".")) for n in range(count))), evidence)
            assert text.count("\n") + 1 == lines + shown and text.count("\n\n") == 3
            assert ("more, which --arguments" in words(text)) is (count > shown)


def test_a_call_by_groups_has_two():
    for name, ends in (("quantize.fp8b128.rows.m_grouped_contiguous", "[32, 64]"), ("gemm.fp8b128.k_grouped", "[128, 256]")):
        assert f"offsets = array(numpy.array({ends}, numpy.int32))" in example_call(packaged.kernel(name), 80)


def test_more_than_five_kernels_are_listed_and_not_shown(zoo_command):
    assert len(packaged.find("quantize.*.rows")) == 5 and zoo_command("show", "quantize.*.rows").output.count("# a call to paste") == 5
    many = zoo_command("show", "gemm.fp8b128")
    assert many.exit_code == 0 and "# a call" not in many.output and "means 13 kernels, and up to 5 are shown" in words(many.output)
    assert all(kernel.name in many.output for kernel in packaged.find("gemm.fp8b128"))


def test_the_variant_shown_for_a_shape_is_the_one_that_a_call_of_these_sizes_runs(zoo_command):
    for sizes in ((1, 4096, 7168), (64, 7168, 2048), (4096, 7168, 2048)):
        text = words(zoo_command("show", "gemm.fp8b128.dense", "--shape", ",".join(map(str, sizes))).output)
        assert f"M, N, K = {sizes[0]}, {sizes[1]}, {sizes[2]} Hopper (H200): " in text
        kernel, (M, N, K) = packaged.kernel("gemm.fp8b128.dense"), sizes
        for capability, multiprocessors, family in (((9, 0), 132, "Hopper (H200)"), ((10, 0), 148, "Blackwell (B200)")):
            shapes = {
                "a": ("e4m3", (M, K)),
                "a_scale": ("f32", (M, -(-K // 128))),
                "b": ("e4m3", (N, K)),
                "b_scale": ("f32", (-(-N // 128), -(-K // 128))),
                "d": ("bf16", (M, N)),
            }
            arrays = {
                name: Array(number << 40, dtype, shape, (shape[1], 1)) for number, (name, (dtype, shape)) in enumerate(shapes.items(), 1)
            }
            launch = resolve(kernel, arrays, capability, multiprocessors)
            assert f"{family}: {launch.variant.name}: grid {launch.grid[0]} x {launch.grid[1]}" in text
            assert f"variants fit: {launch.variant.name} {launch.variant.cost.evaluate(launch.symbols):,}, " in text


@pytest.mark.parametrize(
    ("shape", "said"),
    [("1,2", "a shape is M,N,K, got 1,2"), ("64,100,7168", "N must be a multiple of 8"), ("1,2,x", "expected whole numbers")],
)
def test_a_shape_that_is_none_is_refused(zoo_command, shape, said):
    result = zoo_command("show", "gemm.fp8b128.dense", "--shape", shape)
    assert said in words(result.output) and "Traceback" not in result.output


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["--shape", "99999999999999999999,128,128"], 2, "is larger than any size"),
        (["--shape", "9223372036854775807,128,128"], 1, "have more bytes than 64 bits count"),
        (["--shape", "9" * 5000], 2, "..."),
        (["--shape", "64,128,128", "--shape", "1,128,128"], 2, "give --shape once"),
        (["--groups", "4"], 2, "give --shape, too"),
        (["--groups", "4", "--shape", "64,128,128"], 2, "has no offsets: leave out --groups"),
        (["--shape", "64,100,100"], 1, "K must be a positive multiple of 16"),
    ],
)
def test_a_shape_that_no_call_has_is_refused_in_a_short_sentence_and_the_exit_status(zoo_command, arguments, status, said):
    result = zoo_command("show", "gemm.fp8b128.dense", *arguments)
    assert result.exit_code == status and said in words(result.output) and len(result.output) < 1500


def test_sizes_of_a_gated_product_are_named(zoo_command):
    text = words(zoo_command("show", "gemm.nvfp4.dense.swiglu_nvfp4", "--shape", "64,4096,7168").output)
    assert "M, I, K = 64, 4096, 7168 Blackwell" in text
    assert "M: rows; I: gates and as many ups, so columns of the result; K: elements that a product sums along" in text
