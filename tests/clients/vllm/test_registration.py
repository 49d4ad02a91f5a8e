"""What vLLM's entry point changes, and what it leaves alone."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("vllm", reason="vLLM is not installed")

CHECKOUT = Path(__file__).parents[3]
LISTS = ("_POSSIBLE_FP8_BLOCK_KERNELS", "_POSSIBLE_NVFP4_KERNELS", "_POSSIBLE_MXFP4_KERNELS")


@pytest.fixture
def fresh(vllm_config, monkeypatch):
    """vLLM as it is before any plugin, and what is warned about."""
    from vllm.model_executor.kernels import linear
    from vllm.model_executor.layers.fused_moe.routed_experts import RoutedExperts

    import zoo.vllm

    for name in LISTS:
        kept = {where: [one for one in kernels if not is_zoo(one)] for where, kernels in getattr(linear, name).items()}
        monkeypatch.setattr(linear, name, kept)
    monkeypatch.setattr(RoutedExperts, "_get_quant_method", RoutedExperts._get_quant_method.__wrapped__)
    monkeypatch.setattr(zoo.vllm, "_registered", set())
    said = []
    monkeypatch.setattr(zoo.vllm, "_warn", said.append)
    return said


def is_zoo(kernel):
    return kernel.__module__.startswith("zoo.")


def registered():
    """Kinds of layers for which zoo is there, and for all of which it is first."""
    from vllm.model_executor.kernels import linear
    from vllm.model_executor.layers.fused_moe.routed_experts import RoutedExperts

    lists = [kernels for name in LISTS for kernels in getattr(linear, name).values() if any(map(is_zoo, kernels))]
    assert all(is_zoo(kernels[0]) and sum(map(is_zoo, kernels)) == 1 for kernels in lists)
    return len(lists), hasattr(RoutedExperts._get_quant_method, "__wrapped__")


def register():
    import zoo.vllm

    zoo.vllm.register()


def test_the_switch_leaves_vllm_alone_without_a_word(fresh, monkeypatch):
    monkeypatch.setenv("ZOO_VLLM", "0")
    register()
    assert registered() == (0, False) and fresh == []


@pytest.mark.parametrize("switch", ["ZOO_VLLM", "ZOO_VLLM_TOKENS"])
def test_a_misspelt_switch_leaves_vllm_alone_and_says_so(switch, fresh, monkeypatch):
    monkeypatch.setenv(switch, "of")
    register()
    assert registered() == (0, False) and len(fresh) == 1 and f"{switch}: expected" in fresh[0] and "'of'" in fresh[0]


def test_registering_again_in_one_process_adds_nothing(fresh):
    register()
    register()
    assert registered() == (3, True) and fresh == []


def test_without_a_gpu_vllm_is_left_alone_with_one_warning(fresh, monkeypatch):
    monkeypatch.delenv("ZOO_VLLM")
    register()
    assert registered() == (0, False) and len(fresh) == 1 and "no NVIDIA GPU" in fresh[0]


def test_a_warning_comes_once_where_vllm_calls_its_plugins_again():
    program = "import logging, zoo.vllm; logging.basicConfig(); zoo.vllm.register(); zoo.vllm.register()"
    environment = {**os.environ, "ZOO_VLLM": "of"}
    found = subprocess.run([sys.executable, "-c", program], cwd=CHECKOUT, env=environment, capture_output=True, text=True, check=True)
    assert found.stderr.count("ZOO_VLLM: expected") == 1


def test_a_gpu_without_cubins_is_left_to_vllm_with_one_warning(fresh, monkeypatch):
    from vllm.platforms import current_platform
    from vllm.platforms.interface import DeviceCapability

    monkeypatch.delenv("ZOO_VLLM")
    monkeypatch.setattr(type(current_platform), "is_cuda", lambda self: True)
    monkeypatch.setattr(type(current_platform), "get_device_capability", classmethod(lambda cls, *_: DeviceCapability(8, 9)))
    register()
    assert registered() == (0, False) and len(fresh) == 1 and "8.9" in fresh[0]


def test_batch_invariant_serving_is_left_to_vllm(fresh, monkeypatch):
    monkeypatch.setenv("VLLM_BATCH_INVARIANT", "1")
    register()
    assert registered() == (0, False) and len(fresh) == 1 and "VLLM_BATCH_INVARIANT" in fresh[0]


@pytest.mark.parametrize(
    ("module", "name", "there"),
    [
        ("vllm.model_executor.kernels.linear", "init_nvfp4_linear_kernel", (0, True)),
        ("vllm.model_executor.kernels.linear", "register_linear_kernel", (0, True)),
        ("vllm.model_executor.layers.fused_moe.fused_moe_method_base", "FusedMoEMethodBase.apply", (3, False)),
        ("vllm.model_executor.layers.fused_moe.routed_experts", "RoutedExperts._get_quant_method", (3, False)),
    ],
)
def test_another_signature_of_vllm_leaves_its_layers_to_vllm(module, name, there, fresh, monkeypatch):
    def other(self, something_new):
        raise AssertionError("called")

    monkeypatch.setattr(f"{module}.{name}", other)
    register()
    assert registered() == there and len(fresh) == 1 and "something_new" in fresh[0]


@pytest.mark.parametrize("name", ["ShardedStateLoader", "TensorizerLoader"])
def test_a_vllm_that_saves_by_another_method_keeps_all_its_layers(name, fresh, monkeypatch):
    monkeypatch.setattr(f"vllm.model_executor.model_loader.{name}.save_model", lambda model, something_new: None)
    register()
    assert registered() == (0, False) and len(fresh) == 2 and all("something_new" in one for one in fresh)


def test_a_name_that_vllm_has_no_more_leaves_its_layers_to_vllm(fresh, monkeypatch):
    from vllm.model_executor.kernels import linear

    monkeypatch.delattr(linear, "_POSSIBLE_MXFP4_KERNELS")
    import zoo.vllm

    zoo.vllm.register()
    monkeypatch.undo()
    assert len(fresh) == 1 and "_POSSIBLE_MXFP4_KERNELS" in fresh[0]


def test_vllm_finds_the_entry_point_that_the_package_declares(vllm_config, tmp_path, monkeypatch):
    from vllm.plugins import DEFAULT_PLUGINS_GROUP, load_plugins_by_group

    import zoo.vllm

    declared = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]["entry-points"]
    lines = [f"[{group}]\n" + "\n".join(f"{name} = {place}" for name, place in points.items()) for group, points in declared.items()]
    folder = tmp_path / "cubin_zoo_as_installed-0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: cubin-zoo-as-installed\nVersion: 0\n")
    (folder / "entry_points.txt").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(tmp_path)
    assert load_plugins_by_group(DEFAULT_PLUGINS_GROUP)["zoo"] is zoo.vllm.register


def test_importing_the_plugin_imports_no_vllm():
    program = "import sys, zoo, zoo.vllm; sys.exit(any(name.split('.')[0] == 'vllm' for name in sys.modules))"
    subprocess.run([sys.executable, "-c", program], cwd=CHECKOUT, check=True)
