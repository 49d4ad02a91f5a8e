"""`zoo emulate --cute`: host functions of CuTe DSL run, and what they launch is emulated."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

KERNELS = Path(__file__).parents[1] / "emulator" / "kernels" / "cute_kernels.py"
with_cute = pytest.mark.skipif(
    importlib.util.find_spec("cutlass") is None, reason="CuTe DSL is not installed: pip install nvidia-cutlass-dsl"
)


@pytest.fixture
def emulate(zoo_command, tmp_path, monkeypatch):
    def run(name, spec, arch, *arguments):
        (tmp_path / "args.toml").write_text(spec)
        monkeypatch.chdir(tmp_path)
        result = zoo_command(
            "emulate", "--cute", f"{KERNELS}:{name}", "--args", "args.toml", "--arch", arch, "--save", ".", "--json", "r.json", *arguments
        )
        return result, json.loads(Path("r.json").read_text()) if Path("r.json").exists() else None

    return run


@with_cute
@pytest.mark.parametrize("arch", ["sm_80", "sm_100a", "sm_120a"])
def test_scalars_and_constants_reach_a_kernel(emulate, arch):
    spec = """args = [
        { name = "x", dtype = "bf16", shape = [200], fill = "arange" }, { name = "y", dtype = "f32", shape = [200], fill = "empty" },
        { name = "factor", value = 0.5 }, { name = "limit", value = 40.0 }]"""
    result, about = emulate("scale", spec, arch)
    assert result.exit_code == 0 and about["ok"] and "1 launch of 1 kernel, 2 schedules" in result.output
    assert (np.load("y.npy") == np.minimum(np.arange(200) / 2, 40)).all()


@with_cute
@pytest.mark.parametrize("waits", [True, False])
def test_a_copy_that_is_not_waited_for_is_found_at_its_line(emulate, waits):
    spec = f"""args = [
        {{ name = "x", dtype = "f32", shape = [4, 128], fill = "arange" }}, {{ name = "y", dtype = "f32", shape = [4, 128], fill = "empty" }},
        {{ name = "waits", value = {str(waits).lower()} }}]"""
    result, about = emulate("reverse", spec, "sm_80")
    assert result.exit_code == (not waits) and bool(about["causes"]) != waits
    if waits:
        assert (np.load("y.npy") == np.load("x.npy")[:, ::-1]).all()
    else:
        place = next(number for number, line in enumerate(KERNELS.read_text().splitlines(), 1) if "tile[row" in line)
        assert about["causes"][0]["kind"] == "pending-destination" and about["causes"][0]["here"]["source"].endswith(
            f"cute_kernels.py:{place}"
        )


@with_cute
def test_a_product_reads_the_tensor_maps_of_the_host(emulate):
    spec = """args = [
        { name = "a", dtype = "f16", shape = [64, 64], fill = "random" }, { name = "b", dtype = "f16", shape = [64, 64], fill = "random" },
        { name = "c", dtype = "f32", shape = [64, 64], fill = "empty" }]"""
    result, about = emulate("product", spec, "sm_90a")
    assert result.exit_code == 0 and not about["causes"]
    a, b, c = (np.load(f"{name}.npy").astype("f8") for name in "abc")
    assert np.allclose(c, a @ b.T, atol=1e-3)


@with_cute
def test_arguments_that_do_not_fit_are_a_line(emulate):
    result, _ = emulate("reverse", 'args = [{ name = "x", dtype = "f32", shape = [4, 128] }]', "sm_90a")
    assert result.exit_code == 2 and "the function takes x, y, waits; the arguments are x" in result.output
    result, _ = emulate("product", "args = []", "sm_90a", "--grid", "1")
    assert result.exit_code == 2 and "--grid is not for --cute" in result.output


@pytest.mark.skipif(importlib.util.find_spec("cutlass") is not None, reason="CuTe DSL is installed")
def test_without_cute_its_option_says_what_to_install(zoo_command):
    result = zoo_command("emulate", "--cute", "kernels.py:add")
    assert result.exit_code == 2 and "--cute needs CuTe DSL: pip install nvidia-cutlass-dsl" in result.output
