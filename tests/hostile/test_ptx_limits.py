"""PTX that asks for too much, or for what cannot be: an EmulatorError in words, at once and in little memory."""

import time

import pytest

import zoo
from tests.hostile.bounded import bounded
from zoo.emulator import Device, EmulatorError, Module, ParseError
from zoo.emulator import parser as limits

HEAD = ".version 9.0\n.target sm_90a\n.address_size 64\n"


def entry(body: str, module: str = "", parameters: str = "") -> str:
    return f"{HEAD}{module}\n.visible .entry k({parameters})\n{{\n{body}\nret;\n}}\n"


def launch(text: str):
    module = Module(text)
    return Device(arch="sm_90a", instruction_limit=1000).launch(module, "k", (1, 1, 1), (32, 1, 1))


def test_a_refusal_of_the_emulator_is_a_zoo_error():
    assert issubclass(EmulatorError, zoo.EmulationError) and issubclass(zoo.EmulationError, zoo.ZooError)


TOO_MUCH = {
    "4 billion registers": entry(".reg .b32 %r<4294967295>;"),
    "many declarations of many registers": entry("\n".join(f".reg .b32 %q{n}_<100000>;" for n in range(100))),
    "a negative number of registers": entry(".reg .b32 %r<-1>;"),
    "exabytes of shared memory": entry(".shared .b8 a[9223372036854775807];"),
    "gigabytes in dimensions": entry(".local .b8 a[65536][65536];"),
    "negative dimensions": entry(".local .b8 a[-1];"),
    "a parameter in shared memory": entry("", parameters=".shared .b8 p[]"),
    "local memory without a size": entry(".local .b8 a[];"),
    "gigabytes of many variables": HEAD + "\n".join(f".global .b8 a{n}[60000000];" for n in range(200)),
    "a parameter of a gigabyte": entry("", parameters=".param .b8 p[1073741824]"),
    "no alignment": entry(".shared .align 0 .b8 a[4];"),
    "an alignment of 3": entry(".shared .align 3 .b8 a[4];"),
    "an alignment of 2^40": entry(".shared .align 1099511627776 .b8 a[4];"),
    "blocks in blocks": entry("{" * 50_000 + "}" * 50_000),
    "lists in lists": entry("mov.b32 " + "{" * 50_000 + "}" * 50_000 + ";"),
    "nots of nots": entry(".reg .pred %p;\nnot.pred %p, " + "!" * 50_000 + "%p;"),
    "initialisers in initialisers": HEAD + ".global .b8 a[1] = " + "{" * 50_000 + "1" + "}" * 50_000 + ";",
    "an initialiser too long": HEAD + ".global .b8 a[1] = {1, 2, 3};",
    "the address of nothing": HEAD + ".global .b64 a = nothing;",
    "an addend of 2^63": HEAD + ".global .b64 a = a+9223372036854775807;",
    "addresses of addresses": HEAD + "\n".join(f".global .b64 a{n} = a{n + 1};" for n in range(5000)) + ".global .b64 a5000;",
    "a number of 5000 digits": entry("bra " + "9" * 5000 + ";"),
    "a number of 65 bits": entry(".reg .b64 %r;\nmov.b64 %r, 0x10000000000000000;"),
    "an offset of 2^40": entry(".reg .b32 %r;\nld.shared.b32 %r, [%r+1099511627776];"),
    "zero threads": HEAD + ".visible .entry k() .maxntid 0 { ret; }",
    "five numbers of threads": HEAD + ".visible .entry k() .maxntid 1, 1, 1, 1, 1 { ret; }",
    "a million words": entry(";" * 1_100_000),
    "many megabytes": entry("// " + "x" * 5_000_000),
    "comments without an end": entry("/*" * 200_000),
    "seventy thousand instructions": entry("bar.sync 0;\n" * 70_000),
    "no target": ".version 9.0 // .target",
    "a target that is none": ".version 9.0\n.target turing",
    "escapes for a terminal": HEAD + '.file 1 "\x1b[2J"',
}  # fmt: skip


@pytest.mark.parametrize("what", TOO_MUCH)
def test_too_much_is_refused_in_words(what):
    with pytest.raises(ParseError, match="PTX line"):
        Module(TOO_MUCH[what])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (entry(".local .b8 a[1000000];"), "bytes of local memory a thread, the limit is 524,288"),
        (entry("", parameters=".param .b8 p[40000]"), "bytes of parameters, the limit is 32,764"),
    ],
    ids=["local memory", "parameters"],
)
def test_too_much_of_one_kernel_is_refused_when_it_is_decoded(text, words):
    with pytest.raises(EmulatorError, match=words):
        launch(text)


def test_functions_that_call_functions_run_until_the_stack_ends():
    """The search for what a kernel reaches, and for functions that call themselves, must not go as deep as the calls."""
    functions = ".func f0() { ret; }\n" + "\n".join(f".func f{n}() {{ call f{n - 1}; ret; }}" for n in range(1, 5000))
    device = Device(arch="sm_90a")
    assert device.launch(Module(entry("call f3000;", functions)), "k", 1, 32).ok
    report = device.launch(Module(entry("call f4999;", functions)), "k", 1, 32)
    assert [finding.kind for finding in report.findings] == ["stack-overflow"] and "too deep for the emulator" in str(report)


def test_a_module_of_functions_that_may_all_call_each_other_is_decoded_in_time():
    call = ".reg .b64 %p; mov.u64 %p, f0; P: .callprototype ()_ (); call %p, P; ret;"
    functions = "\n".join(f".func f{n}() {{ {call} }}" for n in range(500))
    began = time.process_time()
    Module(entry("call f0;", functions)).program("k")
    assert time.process_time() - began < 10


ENDS = [".version", ".target", ".file 1", ".section", ".section .x {", ".alias", ".alias a,", ".visible", ".global", ".global .b8 a[",
        ".global .b8 a =", ".global .b8 a = {", ".visible .entry", ".visible .entry k(", ".visible .entry k(.param .b8 p[",
        ".visible .entry k() {", ".visible .entry k() { mov.b32", ".visible .entry k() { mov.b32 a,", ".visible .entry k() { @",
        ".visible .entry k() { a: .branchtargets", ".visible .entry k() { .reg .b32", ".visible .entry k() { .pragma", ".func (",
        ".func .attribute(", ".global .attribute("]  # fmt: skip


@pytest.mark.parametrize("end", ENDS)
def test_a_text_that_ends_anywhere_is_refused_in_words(end):
    """Four of these ended in an IndexError."""
    with pytest.raises(ParseError):
        Module(f"{HEAD}{end}")


def test_an_alias_of_nothing_is_refused_in_words():
    with pytest.raises(ParseError, match="nothing, which is not declared"):
        Module(HEAD + ".alias one, nothing;")


@pytest.mark.parametrize("what", ["4 billion registers", "gigabytes of many variables", "a million words", "comments without an end"])
def test_a_refusal_costs_little(tmp_path, what):
    (tmp_path / "text").write_text(TOO_MUCH[what])
    bounded(
        """
        from zoo.emulator import Module, ParseError
        text = open(sys.argv[1]).read()
        before = resource.getrusage(resource.RUSAGE_SELF)
        try:
            Module(text)
            sys.exit("taken")
        except ParseError:
            pass
        after = resource.getrusage(resource.RUSAGE_SELF)
        assert after.ru_utime - before.ru_utime < 4, after
        assert after.ru_maxrss - before.ru_maxrss < 300 << 10, after
        """,
        tmp_path / "text",
    )


def test_jumps_that_lead_everywhere_do_not_take_the_square_of_their_number():
    """Each of 400 branches may go to each of 400 places."""
    names = [f"L{n}" for n in range(400)]
    body = [".reg .b32 %i;", "mov.b32 %i, %tid.x;", f"T: .branchtargets {', '.join(names)};"]
    body += [f"{name}: .reg .b32 %r{name};\nmov.b32 %r{name}, 1;\nbrx.idx %i, T;" for name in names]
    began = time.process_time()
    Module(entry("\n".join(body))).program("k")
    assert time.process_time() - began < 10


def test_what_kernels_need_is_far_from_the_limits():
    registers = limits.MOST_REGISTERS // 2
    module = Module(entry(f".reg .b32 %r<{registers}>;\nmov.b32 %r{registers - 1}, 1;"))
    assert len(module.functions["k"].registers) == registers


def test_an_address_before_all_memory_is_a_finding():
    """The first local variable less a hundred bytes: a negative number, which no register holds."""
    report = launch(entry(".local .b8 a[4];\n.reg .b64 %r;\n.reg .b32 %s;\nmov.u64 %r, a-100;\nld.local.b32 %s, [%r];"))
    assert not report.ok and {finding.kind for finding in report.findings} == {"out-of-bounds"}


def test_a_grid_of_more_ctas_than_memory_holds_ends_at_the_limit_of_instructions():
    """Not only their code: the CTAs themselves are not listed before they run."""
    printed = bounded(
        """
        from zoo.emulator import Device, Module
        module = Module(".version 9.0\\n.target sm_90a\\n.address_size 64\\n.visible .entry k() { ret; }")
        for grid in ((2**31 - 1, 1, 1), (2**31 - 1, 65535, 65535)):
            report = Device("sm_90a", instruction_limit=1000).launch(module, "k", grid, 32)
            print(report.ok, report.findings[0].kind)
        """
    )
    assert printed == "False livelock\n" * 2


@pytest.mark.parametrize(("ctas", "completes"), [(10, True), (11, False)])
def test_the_last_instruction_may_be_the_one_past_the_limit(ctas, completes):
    """Where every CTA that had begun has ended when the limit is met."""
    report = Device("sm_90a", instruction_limit=9).launch(Module(entry("")), "k", ctas, 32)
    assert report.completed == completes and [one.kind for one in report.findings] == ([] if completes else ["livelock"])


@pytest.mark.parametrize(
    "misuse",
    [
        lambda module: Device().launch("k", "k", 1, 32),
        lambda module: Device().launch(module, ["k"], 1, 32),
        lambda module: Device().launch(module, "k", 1, 32, params=None),
        lambda module: Device().launch(module, "k", 1, 32, params=7),
        lambda module: Device().launch(module, "k", 2**31, 32),
        lambda module: Device().launch(module, "k", 10**5000, 32),
        lambda module: Device().alloc(10**5000),
        lambda module: Device(seed=-1).launch(module, "k", 1, 32),
        lambda module: Device(seed="x"),
        lambda module: Device(instruction_limit="many"),
        lambda module: Device(multiprocessors=0),
    ],
)
def test_a_launch_that_cannot_be_meant_is_refused_in_words(misuse):
    with pytest.raises(zoo.ZooError):
        misuse(Module(entry("")))
