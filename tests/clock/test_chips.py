"""The data files of chips: every number has a source, and what was measured on no GPU says so."""

import re

import pytest

from zoo.clock import chip as chips
from zoo.clock.chip import FILES, chip_for, read
from zoo.errors import ArgumentError


@pytest.mark.parametrize("arch", FILES)
def test_a_number_without_a_source_is_refused(arch, tmp_path):
    text = (chips.Path(chips.__file__).parent / FILES[arch]).read_text()
    for name in chip_for(arch).sources:
        damaged = re.sub(rf"^({name} = .*source = )\"[^\"]*\"", r'\1""', text, flags=re.MULTILINE)
        assert damaged != text
        (tmp_path / "chip.toml").write_text(damaged)
        with pytest.raises(ValueError, match=f"{name}: a number needs a source"):
            read(tmp_path / "chip.toml")


def test_a_file_with_a_number_too_many_or_too_few_is_refused(tmp_path):
    text = (chips.Path(chips.__file__).parent / FILES["sm_90a"]).read_text()
    for damaged in (text + 'more = { value = 1, source = "x" }\n', re.sub(r"^clock = .*\n", "", text, flags=re.MULTILINE)):
        (tmp_path / "chip.toml").write_text(damaged)
        with pytest.raises(ValueError, match="a number is missing or unknown"):
            read(tmp_path / "chip.toml")


def test_only_hopper_was_held_to_a_gpu():
    assert [arch for arch in FILES if chip_for(arch).held_to_measured_times] == ["sm_90a"]


def test_an_arch_without_a_file_is_refused():
    with pytest.raises(ArgumentError, match=r"no clock for sm_120a: zoo has latencies and rates of sm_90a, sm_100f"):
        chip_for("sm_120a")
