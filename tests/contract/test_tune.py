"""tools/tune.py reads every table that has cost rules: a name it does not know would stop it after the sweep was paid for."""

import importlib.util
import json
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GROUPS = {"d.f32": 0, "M": 32768, "N": 4096, "K": 4096, "G": 8, "row_scale.present": 0}
OFFSETS = {"offsets.present": 1, "m_indices.present": 0}
INDICES = {"offsets.present": 0, "m_indices.present": 1}
DENSE = {
    "d.f32": 0,
    "M": 4096,
    "N": 4096,
    "K": 7168,
    "row_scale.present": 0,
    "c.present": 0,
    "batch_invariant.no": 1,
    "batch_invariant.yes": 0,
    "b_constant.no": 1,
    "b_constant.yes": 0,
}
SWIGLU = {"gates.interleaved": 0}
CASES = (
    ("dense", "", "t128", "t192", DENSE),
    ("m_grouped_contiguous", "", "t128", "t192", GROUPS | OFFSETS),
    ("m_grouped_contiguous", "", "t128_indices", "t192_indices", GROUPS | INDICES),
    (
        "m_grouped_masked",
        "",
        "t128",
        "t192",
        {"R": 384, "G": 32, "N": 4096, "K": 4096, "expected_rows": 192, "row_scale.present": 0, "d.f32": 0},
    ),
    ("m_grouped_gather", "", "t192", "t128_w256_moved", GROUPS | {"T": 32768, "workspace.present": 1}),
    ("k_grouped", "", "f32_t192", "f32_t256", {"M": 4096, "N": 7168, "K": 34304, "G": 4}),
    ("dense_swiglu", "swiglu", "few32_w64", "few64_w256", DENSE | SWIGLU | {"M": 32}),
    ("dense_swiglu", "swiglu_fp8b128", "few32_w64", "few16_w256", DENSE | SWIGLU | {"M": 16}),
    ("m_grouped_contiguous_swiglu", "swiglu", "t192_indices", "t128_indices", GROUPS | INDICES | SWIGLU),
    ("m_grouped_contiguous_swiglu", "swiglu_fp8b128", "t192", "t128", GROUPS | OFFSETS | SWIGLU),
    ("m_grouped_masked_swiglu", "swiglu", "t192", "t64", {"R": 384, "G": 32, "N": 4096, "K": 4096, "expected_rows": 192} | SWIGLU),
)


@pytest.fixture(scope="module")
def tune():
    spec = importlib.util.spec_from_file_location("tune", ROOT / "tools" / "tune.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read(tune, name):
    return tune.read(ROOT / "src_cu" / "gemm" / f"fp8b128_{name}.toml")


def sweep(tune, path, name, format, times, symbols, **more):
    _, table, rules = read(tune, name)
    path.write_text(
        json.dumps([{"kernel": table["name"].format(format=format), "shape": [name], "times": times, "symbols": symbols} | more])
    )
    return tune.Sweep(table, rules, [path])


@pytest.mark.parametrize(("name", "format", "one", "other", "symbols"), CASES)
def test_the_regret_of_a_sweep_is_that_of_the_variant_the_rule_chooses(tune, tmp_path, name, format, one, other, symbols):
    regrets = []
    for slower in (one, other):
        ((regret, _, _, best),) = sweep(tune, tmp_path / "sweep.json", name, format, {one: 100, other: 100, slower: 150}, symbols).regrets()
        assert slower not in (best, f"f32_{best}")
        regrets.append(regret)
    assert sorted(regrets) == [1, 1.5], "the rule chooses by sizes, not by times"


@pytest.mark.parametrize("chosen", ["no", "yes"])
def test_a_rule_is_judged_under_the_options_of_its_sweep(tune, tmp_path, chosen):
    symbols = DENSE | {"M": 1, "b_constant.no": int(chosen == "no"), "b_constant.yes": int(chosen == "yes")}
    one = sweep(tune, tmp_path / "few.json", "dense", "", {"t128": 100}, symbols, options={"b_constant": chosen})
    ((shape, values, _),) = one.cases
    assert (values["b_constant.no"], values["b_constant.yes"]) == (int(chosen == "no"), int(chosen == "yes"))
    assert shape == ("dense", chosen), "so that a report says which"


def test_what_no_choice_by_sizes_can_avoid_is_told(tune, tmp_path):
    _, table, rules = read(tune, "m_grouped_contiguous")
    symbols = GROUPS | OFFSETS
    ways = [{"t128": 100, "t192": 121}, {"t128": 121, "t192": 100}]
    file = tmp_path / "sweep.json"
    file.write_text(json.dumps([{"kernel": table["name"], "shape": [8], "times": times, "symbols": symbols} for times in ways]))
    assert tune.Sweep(table, rules, [file]).unavoidable() == pytest.approx((1.1, 1.21))


def test_fitted_numbers_are_written_where_they_were(tune):
    text, _, rules = read(tune, "dense_swiglu")
    assert tune.rewritten(text, rules) == text
    rule = next(rule for rule in rules if rule.name == "t192")
    rule.numbers = {name: number + 1000 for name, number in rule.numbers.items()}
    changed = tomllib.loads(tune.rewritten(text, rules))
    for case, as_was in zip(changed["words"], tomllib.loads(text)["words"], strict=True):
        assert case == as_was | {name: number + 1000 for name, number in as_was.items() if name == "TILE_OF_192"}
    assert sum("TILE_OF_192" in case for case in changed["words"]) == 2
    before, after = ([tile for part in one["variants"] for tile in part.get("tiles", ())] for one in (tomllib.loads(text), changed))
    assert [one["name"] for one, other in zip(before, after, strict=True) if one != other] == ["t192"]


def test_a_number_is_written_to_its_own_tile_alone(tune):
    """Blackwell has tiles of the same names; f32 has some whose costs are the same."""
    text, _, rules = read(tune, "dense")
    (rule,) = (rule for rule in rules if rule.timed_as == "few8_w64_split4")
    rule.numbers = {name: number + 1000 for name, number in rule.numbers.items()}
    before, after = (
        [tile for group in tomllib.loads(one)["variants"] for tile in group["tiles"]] for one in (text, tune.rewritten(text, rules))
    )
    (changed,) = (index for index, (one, other) in enumerate(zip(before, after, strict=True)) if one != other)
    assert before[changed]["name"] == "few8_w64_split4" and "dtypes" not in before[changed]
    assert tune.rewritten(text, [one for one in rules if not one.numbers]) == text, "what is measured is not written here"


def test_a_shape_is_judged_by_a_fit_to_others_and_the_rules_stay(tune, tmp_path):
    _, table, rules = read(tune, "k_grouped")
    cases = []
    for groups in range(1, 9):
        symbols = {"M": 4096, "N": 7168, "K": 4096 * groups, "G": groups}
        times = {"f32_t192": 100, "f32_t256": 104 - groups}
        cases.append({"kernel": table["name"], "shape": [groups, 4096, 7168], "times": times, "symbols": symbols})
    file = tmp_path / "sweep.json"
    file.write_text(json.dumps(cases))
    before = [rule.written() for rule in rules]
    regrets = tune.held_out(rules, tune.Sweep(table, rules, [file]), 3, 2)
    assert sorted(shape[0] for _, shape, *_ in regrets) == list(range(1, 9))
    assert [rule.written() for rule in rules] == before


def test_a_tile_that_nothing_needs_goes_first_and_one_that_a_call_needs_stays(tune, tmp_path):
    _, table, rules = read(tune, "dense")
    cases = [
        {"kernel": table["name"], "shape": [4096], "times": {"t128": 100, "t192": 100.8, "t256_ahead": 130}, "symbols": DENSE},
        {"kernel": table["name"], "shape": [8], "times": {"few8_w64": 5}, "symbols": DENSE | {"M": 8}},
    ]
    file = tmp_path / "sweep.json"
    file.write_text(json.dumps(cases))
    sweep = tune.Sweep(table, rules, [file])
    costs = {"t128": 1, "t192": 2, "t256_ahead": 3, "few8_w64": 4}
    sweep.costs = [{rule: costs[rule.name] for rule in of_case} for of_case in sweep.costs]
    timed = [rule for rule in rules if rule.timed_as in costs]

    def order(most):
        return [(rule.name, max(left.regrets())[0]) for rule, left in tune.dispensable(timed, sweep, most)]

    assert order(1.01) == [("t192", 1), ("t256_ahead", 1)], "one is left of three, and who else would take 8 tokens?"
    costs["t192"] = 0  # which is chosen now
    sweep.costs = [{rule: costs[rule.name] for rule in of_case} for of_case in sweep.costs]
    assert order(1.01) == [("t192", 1), ("t256_ahead", 1)], "a tile whose loss is a gain goes first"
    costs["t128"] = 9
    sweep.costs = [{rule: costs[rule.name] for rule in of_case} for of_case in sweep.costs]
    assert [name for name, _ in order(1.001)] == ["t128", "t256_ahead"], "what is never chosen, in the order of the table"
