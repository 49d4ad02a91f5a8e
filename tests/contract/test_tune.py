"""tools/tune.py reads every table that has cost rules: a flag it does not know would stop it after the sweep was paid for."""

import importlib.util
import json
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CASES = {
    "fp8b128_dense": ([4096, 4096, 7168], "bf16_t128", "bf16_t192"),
    "fp8b128_m_grouped_contiguous": ([8, 4096, 4096, 4096, "even"], "bf16_t128", "bf16_t192"),
    "fp8b128_m_grouped_masked": ([32, 192, 4096, 4096, "masked"], "bf16_t128", "bf16_t192"),
}


@pytest.fixture(scope="module")
def tune():
    spec = importlib.util.spec_from_file_location("tune", ROOT / "tools" / "tune.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", CASES)
def test_the_regret_of_a_sweep_is_that_of_the_variant_the_rule_chooses(tune, tmp_path, name):
    shape, one, other = CASES[name]
    table = tomllib.loads((ROOT / "src_cu" / "gemm" / f"{name}.toml").read_text())
    rules = [tune.Rule(tile) for tile in table["variants"]["tiles"]]
    regrets = []
    for slower in (one, other):
        file = tmp_path / f"{slower}.json"
        file.write_text(json.dumps([{"shape": shape, "times": {one: 100, other: 100, slower: 150}}]))
        ((regret, found, chosen, best),) = tune.Sweep(table, rules, [file]).regrets()
        assert found == tuple(shape) and f"bf16_{best}" != slower
        regrets.append(regret)
    assert sorted(regrets) == [1, 1.5], "the rule chooses by sizes, not by times"


@pytest.mark.parametrize("chosen", ["no", "yes"])
def test_a_rule_is_judged_under_the_options_of_its_sweep(tune, tmp_path, chosen):
    table = tomllib.loads((ROOT / "src_cu" / "gemm" / "fp8b128_dense.toml").read_text())
    rules = [tune.Rule(tile) for tile in table["variants"]["tiles"]]
    file = tmp_path / "few.json"
    file.write_text(json.dumps([{"shape": [1, 576, 7168], "times": {"bf16_t128": 100}, "options": {"b_constant": chosen}}]))
    ((shape, values, _),) = tune.Sweep(table, rules, [file]).cases
    assert (values["b_constant.no"], values["b_constant.yes"]) == (int(chosen == "no"), int(chosen == "yes"))
    assert shape == (1, 576, 7168, chosen), "so that a report says which"
