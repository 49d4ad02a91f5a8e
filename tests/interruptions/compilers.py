"""The build of a few kernels of the tests' own zoo, by a compiler that has compiled them before."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

from tests.hostile.elf import sections_of
from tests.recorder import ROOT
from tools.builder.build import Build
from tools.builder.compiler import Compiled, Text
from zoo.shipped.cubin_file import read_cubin

CUBINS, SOURCES = ROOT / "tests/zoo_cubins", ROOT / "tests/zoo_src"


class Remembering:
    """Gives each unit the committed cubin, with one byte of the padding after its instructions exchanged for `edition`: other sources,
    other bytes, which can be disassembled as well."""

    def __init__(self, edition: int):
        self.edition, self.record = edition, {"nvcc": "of the tests"}
        kernels = json.loads((CUBINS / "manifest.json").read_bytes())["kernels"].values()
        self.entries = {(one["arch"], one["symbol"]): one for entry in kernels for one in entry["variants"]}

    def text(self, unit: str, arch: str, roots: list[Path]) -> Text:
        entry = self._entry(unit, arch)
        return Text(f"// {entry['symbol']}, edition {self.edition}\n", entry["shared"])

    def compiled(self, unit: str, arch: str, roots: list[Path]) -> Compiled:
        entry = self._entry(unit, arch)
        data = (CUBINS / entry["file"]).read_bytes()
        (code,) = (section.data for section in sections_of(data) if section.name == b".text." + entry["symbol"].encode())
        at = data.index(code) + len(code) - 12  # in the last NOP
        made = data[:at] + bytes([self.edition]) + data[at + 1 :]
        assert made != data and read_cubin(made)
        return Compiled(self.text(unit, arch, roots), made, 0, 0)

    def stop(self) -> None: ...

    def _entry(self, unit: str, arch: str):
        return self.entries[arch, re.search(r"#define ZOO_KERNEL (\w+)", unit)[1]]


def builds(folder: Path, root: Path) -> tuple[Build, Build]:
    """An older build of six variants for two archs, and a newer one of one of them, whose source has changed, into `root`/cubins."""
    made = []
    for edition, names in ((1, ("bf16_mxfp4_dense", "mxfp4_masked")), (2, ("bf16_mxfp4_dense",))):
        tree = folder / str(edition)
        shutil.copytree(SOURCES / "common", tree / "common")
        for name in names:
            for file in (f"gemm/tables/{name}.toml", f"gemm/kernels/{name}.cu"):
                (tree / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(SOURCES / file, tree / file)
        if edition == 2:
            table, source = tree / "gemm/tables/bf16_mxfp4_dense.toml", tree / "gemm/kernels/bf16_mxfp4_dense.cu"
            text = table.read_text()
            assert '["sm_90a", "sm_100f"]' in text
            table.write_text(text.replace('["sm_90a", "sm_100f"]', '["sm_90a"]'))
            source.write_text(source.read_text() + "struct Changed;\n")
        roots = [tree, ROOT / "src_cu"]
        made.append(Build(Remembering(edition), roots, root / "cubins", root / "zoo/shipped/pins.py", 1))
    return made[0], made[1]
