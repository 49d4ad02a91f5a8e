"""A manifest without a pin may hold anything: an entry is refused as a whole, or every call of it ends in words."""

import random
import re

import pytest

from tests.contract.entries import entry
from zoo.contract.array import Array
from zoo.contract.manifest import parse_kernel
from zoo.contract.resolve import resolve
from zoo.errors import ManifestError, ZooError

NAME = "gemm.fp8b128.dense"
VALUES = (
    None, -1, 0, 1, 3, 2**31, 2**70, -(2**70), 0.5, 1e300, True, False, "", "1 +", "0", "M", "a", "b", "nothing", "layout.plain", "scale.present",
    "M // 0", "../../etc", "/etc/passwd", "a\0b", "\ud800", "f32", "pointer", "tensor_map", [], {}, [[]], ["1"], ["M", "K"], {"a": "e4m3"}, "(" * 300,
)  # fmt: skip
PARTS = ("fields", "summary", "promises", "options", "arguments", "derived", "constraints", "launches", "variants")


def one_small_entry() -> dict:
    made = entry(NAME)
    made["variants"] = made["variants"][:2]
    return made


def call(dtype: str = "bf16", layout: str = "plain") -> dict:
    def rows(address, kind, m, n):
        return Array(address << 24, kind, (m, n), (n, 1))

    scale = rows(3, "ue8m0", 100, 8) if layout == "plain" else rows(3, "ue8m0", 128, 8)
    made = {"a": rows(1, "e4m3", 100, 256), "b": rows(2, "e2m1x2", 64, 128), "scale": scale, "d": rows(4, dtype, 100, 64)}
    return {**made, "scratch": Array(5 << 24, "u8", (100 * 64 * 4,), (1,)), "layout": layout}


def mutated(pick: random.Random) -> dict:
    data = one_small_entry()
    for _ in range(pick.choice((1, 1, 1, 2, 3))):
        parent, key = data, pick.choice(PARTS)
        node = parent.get(key)
        while isinstance(node, (dict, list)) and node and pick.random() > 0.12:
            parent, key = node, pick.choice(list(node)) if isinstance(node, dict) else pick.randrange(len(node))
            node = parent[key]
        what = pick.random()
        if what < 0.2:
            parent.pop(key, None) if isinstance(parent, dict) else parent.pop(key)
        elif what < 0.3 and isinstance(parent, list):
            parent.append(pick.choice((parent[key], pick.choice(VALUES))))
        elif what < 0.4 and isinstance(parent, dict):
            parent[pick.choice(("a", "K", "1 +", "\ud800"))] = pick.choice(VALUES)
        else:
            parent[key] = pick.choice(VALUES)
    return data


def test_the_entry_that_is_mutated_is_right():
    kernel = parse_kernel(NAME, one_small_entry())
    assert resolve(kernel, call(), (9, 0), 132).variant.name == "e4m3_bf16_plain_large"


def test_random_edits_raise_nothing_but_zoo_errors():
    """Each edited entry is parsed, and two calls of it resolved and printed: 3000 entries, three outcomes, all met."""
    from zoo.cli.contract import as_data, as_text
    from zoo.shipped.evidence import Evidence

    pick, evidence = random.Random(5), Evidence("/nonexistent")
    malformed = refused = launched = 0
    for _ in range(3000):
        try:
            kernel = parse_kernel(NAME, mutated(pick))
        except ManifestError:
            malformed += 1
            continue
        as_text(kernel, evidence).encode()
        as_data(kernel, evidence)
        for arguments in (call(), call("f32", "blocked")):
            try:
                launch = resolve(kernel, arguments, (9, 0), 132)
                assert len(launch.logical_block()) == launch.variant.launch.parameter_bytes
                launched += 1
            except ZooError:
                refused += 1
    assert malformed > 1000 and refused > 100 and launched > 100


def change(*path_and_value):
    *path, last, value = path_and_value

    def apply(data):
        for step in path:
            data = data[step]
        data[last] = value

    return apply


MISTAKES = {
    "a kind of argument": (change("arguments", 0, "kind", "matrix"), "arguments[0].kind is 'matrix'"),
    "an option that is code": (lambda data: data["options"].update({"a b": data["options"]["order"]}), "options has the key 'a b', expected a name"),
    "an option's value that is code": (change("options", "layout", "values", ["plain", "b-d"]), "options.layout.values[1] is 'b-d', expected a name"),
    "a derived symbol that is code": (change("derived", 0, 0, "a b"), "derived[0] is ['a b', "),
    "a constant that is code": (change("variants", 0, "constants", {"A B": 1}), "variants[0].constants has the key 'A B', expected a name"),
    "a constant of 33 bits": (change("variants", 0, "constants", {"A": 1 << 31}), "variants[0].constants.A is 2147483648, expected an integer of 32 bits"),
    "a scalar's default of 33 bits": (change("arguments", 6, "default", 1 << 31), "arguments[6].default is 2147483648, expected an integer that fits 32 bits"),
    "a number of two dtypes": (change("arguments", 5, "dtypes", ["f32", "i32"]), "arguments[5].dtypes is ['f32', 'i32'], expected one of "),
    "a number of no dtype": (change("arguments", 5, "dtypes", []), "arguments[5].dtypes is []"),
    "a number of bytes": (change("arguments", 5, "dtypes", ["e4m3"]), "arguments[5].dtypes is ['e4m3'], expected one of "),
    "a number with a form": (change("arguments", 5, "forms", [{"when": "1", "shape": ["M"], "strides": None}]), "arguments[5].forms is "),
    "a number that may be left out": (change("arguments", 5, "optional", True), "arguments[5].optional is True, expected False for a scalar"),
    "an array of one dtype that is not compiled": (change("arguments", 1, "compiled", False), "arguments[1].compiled is False, expected true, as there is only one dtype"),
    "a scalar that is written": (change("arguments", 6, "access", "write"), "arguments[6].access is 'write', expected 'read' for a scalar"),
    "an array without a form": (change("arguments", 0, "forms", []), "arguments[0].forms is []"),
    "strides of another rank": (change("arguments", 0, "forms", 0, "strides", ["1"]), "arguments[0].forms[0].strides is ['1']"),
    "no form for an option": (change("arguments", 2, "forms", 1, "when", "layout.plain"), "arguments[2].forms: none holds with layout = blocked"),
    "a form for none": (change("arguments", 1, "forms", 0, "when", "0"), "arguments[1].forms: none holds with any call"),
    "a form by a size": (change("arguments", 1, "forms", 0, "when", "M > 1"), "arguments[1].forms are chosen by 'M', which is no flag"),
    "an alignment of three": (change("arguments", 0, "alignment", 3), "arguments[0].alignment is 3, expected a power of two"),
    "an absurd alignment": (change("arguments", 0, "alignment", 2**70), "arguments[0].alignment is 1180591620717411303424"),
    "an array's default": (change("arguments", 0, "default", 1), "arguments[0].default is 1"),
    "a name twice": (change("arguments", 1, "name", "a"), "arguments[1].name is 'a', which is already taken"),
    "a name that is code": (change("arguments", 0, "name", "a[0]; system"), "arguments[0].name is 'a[0]; system'"),
    "an argument's compiled that is no truth value": (change("arguments", 0, "compiled", 1), "arguments[0].compiled is 1"),
    "a variant that fixes the dtype of what has one": (change("variants", 0, "dtypes", {"a": "e4m3", "d": "bf16", "b": "e2m1x2"}), "variants[0].dtypes is {'a': 'e4m3', 'b': 'e2m1x2', 'd': 'bf16'}, expected of a, c, d"),
    "a dtype of a number": (change("variants", 0, "dtypes", {"a": "e4m3", "d": "bf16", "alpha": "f32"}), "variants[0].dtypes is {"),
    "a compiled option that is not said": (change("variants", 0, "options", {}), "variants[0].options is {}, expected one of each of layout"),
    "compiled that is no truth value": (change("options", "layout", "compiled", 1), "options.layout.compiled is 1"),
    "a variant that fixes what is not compiled": (change("variants", 0, "options", {"layout": "plain", "order": "forward"}), "variants[0].options is {"),
    "a default outside its list": (change("options", "layout", "default", "tiled"), "options.layout.default is 'tiled'"),
    "a grid of two": (change("launches", "default", "grid", ["1", "1"]), "launches.default.grid is ['1', '1']"),
    "a parameter's kind": (change("launches", "default", "parameters", 0, "kind", "u32"), "launches.default.parameters[0].kind is 'u32'"),
    "a parameter of nothing": (change("launches", "default", "parameters", 0, "argument", "e"), "launches.default.parameters[0].argument is 'e'"),
    "a pointer to a number": (change("launches", "default", "parameters", 0, "argument", "alpha"), "launches.default.parameters[0].argument is 'alpha', expected an array argument"),
    "a map of an unknown swizzle": (change("launches", "default", "parameters", 6, "swizzle", "1B"), "launches.default.parameters[6].swizzle is '1B'"),
    "a map of another rank": (change("launches", "default", "parameters", 6, "box", ["128"]), "launches.default.parameters[6].box is ['128']"),
    "a map whose strides are too many": (change("launches", "default", "parameters", 6, "strides", ["1", "2"]), "launches.default.parameters[6].strides is ['1', '2'], expected 1 expression of a map of 2 dimensions"),
    "a map whose steps are too few": (change("launches", "default", "parameters", 6, "element_strides", ["1"]), "launches.default.parameters[6].element_strides is ['1'], expected 2 expressions of a map of 2 dimensions"),
    "a file outside": (change("variants", 0, "file", "../x.cubin"), "variants[0].file is '../x.cubin'"),
    "a file from the root": (change("variants", 0, "file", "/x.cubin"), "variants[0].file is '/x.cubin'"),
    "an arch without a class": (change("variants", 0, "arch", "sm_90"), "variants[0].arch is 'sm_90'"),
    "a digest": (change("variants", 0, "sha256", "0"), "variants[0].sha256 is '0'"),
    "another signature": (change("variants", 0, "signature", "0" * 16), "the cubin was compiled with other parameters than its launch passes"),
    "a resource in words": (change("variants", 0, "registers", "32"), "variants[0].registers is '32'"),
    "a yes for a number": (change("variants", 0, "stack", False), "variants[0].stack is False"),
    "a dtype that is not offered": (change("variants", 0, "dtypes", {"a": "f32", "d": "f32"}), "variants[0].dtypes.a is 'f32'"),
    "a promise that an unknown array may be d": (change("promises", {"e_may_be_d": True}), "promises has 'e_may_be_d', expected an array"),
    "a promise that d may be d": (change("promises", {"d_may_be_d": True}), "promises has 'd_may_be_d', expected an array that is read"),
    "a promise that a number may be d": (change("promises", {"alpha_may_be_d": True}), "promises has 'alpha_may_be_d', expected an array"),
    "a dtype that is not offered of what is not compiled": (change("variants", 0, "dtypes", {"c": "f16"}), "variants[0].dtypes.c is 'f16'"),
    "a launch of none": (change("variants", 0, "launch", "fast"), "variants[0].launch is 'fast'"),
    "an unknown key": (change("variants", 0, "speed", 1), "variants[0] has the unknown key 'speed'"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_malformed_entry_says_what_is_wrong_where(mistake):
    edit, words = MISTAKES[mistake]
    broken = one_small_entry()
    edit(broken)
    with pytest.raises(ManifestError, match=re.escape(f"the manifest's entry '{NAME}' is malformed: ") + ".*" + re.escape(words)):
        parse_kernel(NAME, broken)


@pytest.mark.parametrize("entry_", [None, [], "x", {}, 3])
def test_what_is_no_entry_at_all_is_refused(entry_):
    with pytest.raises(ManifestError, match="is malformed"):
        parse_kernel(NAME, entry_)
