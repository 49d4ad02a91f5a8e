"""Which names there are: clients decide by getattr, so a name without a kernel must be absent, or be another DeepGEMM's."""

from __future__ import annotations

import inspect
import logging
import subprocess
import sys
from functools import cache
from types import SimpleNamespace

import pytest
import torch

import zoo
import zoo.compat.deep_gemm as deep_gemm
from tests.recorder import ROOT
from tests.torch.compat.operands import tokens, untouched, weights
from zoo.compat.deep_gemm import real, settings
from zoo.compat.deep_gemm.start import starter
from zoo.errors import ArgumentError

LACKING = [
    "einsum", "fp8_fp4_mqa_logits", "fp8_mqa_logits", "fp8_paged_mqa_logits", "get_paged_mqa_logits_metadata", "bf16_gemm_nt",
    "m_grouped_bf16_gemm_nt_contiguous", "k_grouped_bf16_gemm_tn_contiguous", "cublaslt_gemm_nt", "tf32_hc_prenorm_gemm",
    "fp8_gemm_nt_skip_head_mid", "fp8_fp4_mega_moe", "per_token_cast_to_fp4",
]  # fmt: skip

# As DeepGEMM 2.6.1 binds them: parameters in order, with their defaults.
SIGNATURES = {
    "fp8_gemm_nt": "a b d c=None recipe=None recipe_a=None recipe_b=None compiled_dims=nk disable_ue8m0_cast=False",
    "fp8_gemm_nn": "a b d c=None recipe=None recipe_a=None recipe_b=None compiled_dims=nk disable_ue8m0_cast=False",
    "fp8_gemm_tn": "a b d c=None recipe=None recipe_a=None recipe_b=None compiled_dims=mn disable_ue8m0_cast=False",
    "fp8_fp4_gemm_tt": "a b d c=None recipe=None recipe_a=None recipe_b=None compiled_dims=mn disable_ue8m0_cast=False",
    "m_grouped_fp8_gemm_nt_contiguous": "a b d grouped_layout recipe=None recipe_a=None recipe_b=None compiled_dims=nk "
    "disable_ue8m0_cast=False use_psum_layout=False ensure_zero_padding=True expected_m_for_psum_layout=None",
    "m_grouped_fp8_gemm_nn_contiguous": "a b d grouped_layout recipe=None recipe_a=None recipe_b=None compiled_dims=nk "
    "disable_ue8m0_cast=False use_psum_layout=False ensure_zero_padding=True",
    "fp8_einsum": "expr a b d c=None recipe=(1, 128, 128)",
    "m_grouped_fp8_gemm_nt_masked": "a b d masked_m expected_m recipe=None recipe_a=None recipe_b=None compiled_dims=nk "
    "disable_ue8m0_cast=False",
    "k_grouped_fp8_gemm_nt_contiguous": "a b d ks_cpu grouped_layout c=None recipe=(1, 1, 128) compiled_dims=mn use_psum_layout=False",
    "k_grouped_fp8_gemm_tn_contiguous": "a b d ks_cpu grouped_layout c=None recipe=(1, 1, 128) compiled_dims=mn use_psum_layout=False",
    "transform_sf_into_required_layout": "sf mn k recipe num_groups=None is_sfa=None disable_ue8m0_cast=False psum_layout=None",
    "get_mn_major_tma_aligned_packed_ue8m0_tensor": "sf psum_layout=None",
    "per_token_cast_to_fp8": "x use_ue8m0 gran_k=128 use_packed_ue8m0=False",
    "per_block_cast_to_fp8": "x use_ue8m0 gran_k=128",
    "per_channel_cast_to_fp8": "x use_ue8m0 gran_k=128",
}


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch):
    monkeypatch.setattr(real, "_settings", {})


@pytest.fixture
def alone(monkeypatch):
    monkeypatch.setenv("ZOO_DEEP_GEMM_REAL", "0")
    monkeypatch.setattr(real, "module", cache(real.module.__wrapped__))


@pytest.mark.parametrize("name", SIGNATURES)
def test_arguments_go_by_the_places_and_names_of_deep_gemm(name):
    found = [one for one in inspect.signature(getattr(deep_gemm, name)).parameters.values() if one.kind is not one.KEYWORD_ONLY]
    expected = [part.partition("=") for part in SIGNATURES[name].replace(", ", ",").split()]
    assert [one.name for one in found] == [part[0] for part in expected]
    for one, (_, _, default) in zip(found, expected, strict=True):
        if one.name != "grouped_layout":  # which may go by its older name, and so has a default
            assert str(one.default).replace(" ", "") == default or (not default and one.default is inspect.Parameter.empty), one.name


@pytest.mark.parametrize("name", LACKING)
def test_a_name_without_a_kernel_is_absent(alone, name):
    assert not hasattr(deep_gemm, name) and getattr(deep_gemm, name, None) is None and name not in dir(deep_gemm)
    with pytest.raises(AttributeError, match="zoo has no kernel for it"):
        getattr(deep_gemm, name)


def test_every_name_is_there_and_in_the_places_that_clients_import():
    assert all(callable(getattr(deep_gemm, name)) for name in deep_gemm.__all__ if name != "utils")
    from zoo.compat.deep_gemm.utils import layout, math

    assert math.per_block_cast_to_fp8 is deep_gemm.utils.per_block_cast_to_fp8 is deep_gemm.per_block_cast_to_fp8
    assert layout.get_mn_major_tma_aligned_tensor is deep_gemm.get_mn_major_tma_aligned_tensor
    assert deep_gemm.utils.get_mk_alignment_for_contiguous_layout() == deep_gemm.get_m_alignment_for_contiguous_layout() == 128


def test_settings_are_kept(monkeypatch):
    for name in ("sms", "_tc_util", "_pdl", "alignment"):
        monkeypatch.setattr(settings, name, getattr(settings, name))
    deep_gemm.set_num_sms(100)
    deep_gemm.set_num_sms(90)
    assert deep_gemm.get_num_sms() == 90
    deep_gemm.set_tc_util(50), deep_gemm.set_pdl(False), deep_gemm.set_mk_alignment_for_contiguous_layout(32)
    assert (deep_gemm.get_tc_util(), deep_gemm.get_pdl(), deep_gemm.get_mk_alignment_for_contiguous_layout()) == (50, False, 32)
    deep_gemm.set_ignore_compile_dims(True), deep_gemm.set_block_size_multiple_of((64, 64))
    for wrong in (0, 1.5, True):
        with pytest.raises(ArgumentError, match="number of rows"):
            deep_gemm.set_mk_alignment_for_contiguous_layout(wrong)
        with pytest.raises(ArgumentError, match="set_num_sms: expected a whole number of 4"):
            deep_gemm.set_num_sms(wrong)
    assert deep_gemm.get_num_sms() == 90


@pytest.mark.parametrize("mode", [2, -1, "off", None, True])
def test_a_compile_mode_that_nobody_has_does_not_silence_products(mode, monkeypatch):
    monkeypatch.setattr(settings, "compile_mode", 0)
    with pytest.raises(ArgumentError, match="set_compile_mode: expected a whole number of 0 to 1"):
        deep_gemm.set_compile_mode(mode)
    assert deep_gemm.get_compile_mode() == 0


def test_a_number_of_multiprocessors_goes_with_every_launch(monkeypatch):
    monkeypatch.setattr(settings, "sms", None)
    deep_gemm.set_num_sms(100)
    launch = starter(SimpleNamespace(is_cuda=True))
    assert launch.func == zoo.launch and launch.keywords == {"multiprocessors": 100}


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A DeepGEMM of another hand, in a folder of the path."""

    def install(text: str):
        (tmp_path / "deep_gemm").mkdir()
        (tmp_path / "deep_gemm" / "__init__.py").write_text(text)
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.setattr(real, "module", cache(real.module.__wrapped__))
        monkeypatch.delitem(sys.modules, "zoo_real_deep_gemm", raising=False)
        return tmp_path / "deep_gemm" / "__init__.py"

    yield install
    sys.modules.pop("zoo_real_deep_gemm", None)
    vars(deep_gemm).pop("einsum", None)  # which was kept, as every name is


FOREIGN = "def einsum(*given): return 'foreign'\ndef fp8_gemm_nt(*given): return 1 / 0\nfp8_fp4_gemm_nt = lambda *given: seen.append(given)\nseen = []\n"


def test_a_name_that_zoo_lacks_comes_from_an_installed_deep_gemm_and_no_other_does(installed):
    installed(FOREIGN)
    assert deep_gemm.einsum() == "foreign"
    assert deep_gemm.fp8_gemm_nt.__module__ == "zoo.compat.deep_gemm.products" and "deep_gemm" not in sys.modules
    assert not hasattr(deep_gemm, "bf16_gemm_nt")


def test_operands_without_a_kernel_go_to_an_installed_deep_gemm(installed):
    installed(FOREIGN)
    a, b, d = tokens(4, 128), weights(64, 128), untouched(4, 64)
    deep_gemm.fp8_fp4_gemm_nt(a, (b[0].view(torch.int8), b[1]), d, recipe_a=(1, 128), recipe_b=(1, 32))
    ((x, _, out, *_),) = real.module().seen
    assert x is a and out is d


def test_scales_of_products_that_zoo_lacks_are_laid_out_by_an_installed_deep_gemm(installed):
    installed("def transform_sf_into_required_layout(*given): return given")
    sf = torch.ones(4, 4)
    assert deep_gemm.transform_sf_into_required_layout(sf, 4, 128, (1, 32)) == (sf, 4, 128, (1, 32), None, None, False)


def test_an_installed_deep_gemm_has_the_settings_of_the_program(installed, monkeypatch):
    monkeypatch.setattr(settings, "sms", None)
    monkeypatch.setattr(settings, "_pdl", True)
    monkeypatch.setattr(settings, "alignment", 128)
    installed(
        "seen = {}\nset_num_sms = lambda n: seen.update(sms=n)\nset_pdl = lambda on: seen.update(pdl=on)\ndef einsum(): return dict(seen)\n"
    )
    deep_gemm.set_num_sms(100)
    deep_gemm.set_mk_alignment_for_contiguous_layout(64)  # which this version lacks
    assert deep_gemm.einsum() == {"sms": 100}
    deep_gemm.set_pdl(False)
    assert deep_gemm.einsum() == {"sms": 100, "pdl": False}


def test_an_installed_deep_gemm_that_fails_leaves_names_absent_and_says_why(installed, caplog):
    installed("raise AssertionError('CUDA_HOME is not set')")
    with caplog.at_level(logging.WARNING):
        assert not hasattr(deep_gemm, "einsum")
    assert "CUDA_HOME is not set" in caplog.text and "zoo_real_deep_gemm" not in sys.modules


def test_importing_zoo_provides_no_deep_gemm_and_the_module_imports_no_torch():
    program = """
import sys
before = list(sys.meta_path)
import zoo, zoo.compat.deep_gemm
assert zoo.compat.deep_gemm.__version__.startswith("2.6.1+zoo")
assert "torch" not in sys.modules and "deep_gemm" not in sys.modules and sys.meta_path == before
"""
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)
