"""Writes what the documentation says of the kernels, from cubins/manifest.json and cubins/evidence.json.

python tools/generate_docs.py              writes docs/kernels/*.md, docs/benchmarks.md, docs/pictures/*.svg, zoo/capi/zoo_contract.h, and the parts
                                           between markers of README.md, docs/{gemm,manifest,performance}.md and docs/lab/quantize.md
python tools/generate_docs.py --check      exit 1 naming what is out of date
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tools.documentation.benchmarks import benchmark_page
from tools.documentation.chips import chip_table
from tools.documentation.contract import contract_tables
from tools.documentation.dense_ratios import dense_ratios
from tools.documentation.families import family_table
from tools.documentation.kernel_pages import index_page, kernel_page
from tools.documentation.performance import (
    dense_table,
    four_bit_dense_table,
    four_bit_grouped_table,
    grouped_table,
    quantiser_tables,
    swiglu_table,
)
from tools.documentation.picture import THEMES, caption, picture
from tools.documentation.standing import standing_table
from tools.documentation.text import between
from zoo.capi.contract_header import header_text
from zoo.contract.manifest import Manifest
from zoo.shipped.evidence import Evidence


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where something is out of date")
    check = parser.parse_args().check
    wanted = pages(ROOT)
    made = [*(ROOT / "docs" / "kernels").glob("*.md"), *(ROOT / "docs" / "pictures").glob("*.svg")]
    stale = sorted(path for path in made if path not in wanted)
    outdated = [path for path, text in wanted.items() if not path.exists() or path.read_text() != text]
    if check:
        for path in outdated + stale:
            print(f"{path.relative_to(ROOT)} is out of date; run tools/generate_docs.py", file=sys.stderr)
        sys.exit(1 if outdated or stale else 0)
    for path in outdated:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(wanted[path])
        print(f"wrote {path.relative_to(ROOT)}")
    for path in stale:
        path.unlink()
        print(f"removed {path.relative_to(ROOT)}")


def pages(root: Path) -> dict[Path, str]:
    """Every generated file and what it should hold."""
    docs, directory = root / "docs", root / "cubins"
    manifest, evidence = Manifest(directory / "manifest.json"), Evidence(directory)
    kernels = list(manifest.kernels)
    ratios = dense_ratios(kernels, evidence)
    made = {docs / "kernels" / f"{kernel.name}.md": kernel_page(kernel, evidence) for kernel in kernels}
    made[docs / "kernels" / "README.md"] = index_page(kernels, evidence)
    made[docs / "benchmarks.md"] = benchmark_page(kernels, evidence)
    made[root / "zoo" / "capi" / "zoo_contract.h"] = header_text()
    made |= {docs / "pictures" / f"tokens_{theme}.svg": picture(ratios, theme) for theme in THEMES}
    parts = {
        root / "README.md": {"caption": f"{caption(ratios)}.", "families": family_table(kernels, evidence)},
        docs / "gemm.md": {"chips": chip_table(kernels)},
        docs / "manifest.md": {"fields": contract_tables()},
        docs / "performance.md": {
            "quantisers": quantiser_tables(kernels, evidence),
            "dense": dense_table(ratios),
            "groups": grouped_table(kernels, evidence),
            "swiglu": swiglu_table(kernels, evidence),
            "four_bits": four_bit_dense_table(kernels, evidence),
            "four_bit_groups": four_bit_grouped_table(kernels, evidence),
        },
        docs / "lab" / "quantize.md": {"standing": standing_table(kernels, evidence)},
    }
    return made | {path: between(path, named) for path, named in parts.items()}


if __name__ == "__main__":
    main()
