"""Programs with CUDA arrays, textures and surfaces over the stand-in for the runtime and the driver."""

import shutil
import sys

import pytest
from host_compiler import PROGRAMS, compiled

from zoo.emulator.program import start

SOURCE = PROGRAMS / "textures.cu"
pytestmark = pytest.mark.skipif(not (sys.platform == "linux" and shutil.which("cc")), reason="a C compiler makes the stand-in")


@pytest.fixture(scope="session")
def program(folder_of_the_run):
    return compiled(SOURCE.name, folder_of_the_run)


def test_texels_are_read_from_arrays_linear_memory_pitched_memory_and_layers(program, capfd):
    result = start(program, ["right"])
    assert (result.status, result.causes, result.seen.refusals) == (0, [], []), capfd.readouterr().out
    said = " ".join(result.seen.notes)
    assert "a texture is refused: texture: the address" in said and "is not a multiple of 512" in said


def test_a_read_past_a_surface_and_a_texture_read_after_its_write_are_reported(program):
    result = start(program, ["wrong"], count=1)
    assert all(cause.severity == "error" for cause in result.causes)
    found = {cause.kind: str(cause.place) for cause in result.causes}
    assert len(result.causes) == 2 and found.keys() == {"out-of-bounds", "race"}
    lines = SOURCE.read_text().splitlines()
    for kind, text in (("out-of-bounds", "void past_the_end"), ("race", "tex2D<float>(image, x +")):
        line = next(number for number, line in enumerate(lines, 1) if text in line)
        assert f"textures.cu:{line}," in found[kind]


def test_a_refusal_of_a_texture_names_seamless_cubes(program):
    result = start(program, ["seamless"])
    assert result.seen.refusals == ["the program makes a texture with seamless cubes, which is not covered"]
