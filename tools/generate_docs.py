"""Writes what the documentation says of the kernels, from cubins/manifest.json, cubins/evidence.json, docs/rivals.json
and docs/learning.json.

python tools/generate_docs.py              writes docs/kernels/*.md, docs/pictures/*.svg, zoo/capi/zoo_contract.h, and the parts
                                           between markers of README.md, docs/formats.md, docs/gemm.md,
                                           docs/layers.md and docs/performance.md
python tools/generate_docs.py --check      exit 1 naming what is out of date

docs/rivals.json is made on a GPU by tools/compare_rivals.py, docs/layers.json by tools/layer_tables.py, docs/learning.json by
`python -m tools.lab.language_model`. What is made of a file is left alone while the file does not exist. Whole layers then have no tables.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tools.clients import record
from tools.documentation.accuracy import accuracy_table
from tools.documentation.clients import clients_table
from tools.documentation.comparison import COMMAND, FILE, Comparison, comparison
from tools.documentation.kernel_pages import kernel_pages
from tools.documentation.layers import FILE as LAYERS
from tools.documentation.layers import PAGE, page, read, summary
from tools.documentation.learning import Learning, learning
from tools.documentation.learning import picture as learning_picture
from tools.documentation.learning import pictures as learning_pictures
from tools.documentation.learning import section as learning_section
from tools.documentation.performance import PAGE as OTHERS
from tools.documentation.performance import libraries_page, limits_table, quantiser_table, rivals_table
from tools.documentation.picture import caption, picture
from tools.documentation.svg import THEMES
from tools.documentation.text import between
from zoo.capi.contract_header import header_text
from zoo.contract.manifest import Manifest
from zoo.shipped.evidence import Evidence


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where something is out of date")
    check = parser.parse_args().check
    found = comparison() if FILE.exists() else None
    wanted = pages(ROOT, found, learning())
    made, kept = (
        [*(ROOT / "docs" / "kernels").glob("*.md"), *(ROOT / "docs" / "pictures").glob("*.svg")],
        {*wanted, *pictures(ROOT), *learning_pictures(ROOT)},
    )
    stale = sorted(path for path in made if path not in kept)
    outdated = [path for path, text in wanted.items() if not path.exists() or path.read_text() != text]
    if found is None:
        print(f"{FILE.relative_to(ROOT)} does not exist: `{COMMAND}` makes it on a GPU", file=sys.stderr)
    if check:
        for path in outdated + stale:
            print(f"{path.relative_to(ROOT)} is out of date; run tools/generate_docs.py", file=sys.stderr)
        sys.exit(1 if outdated or stale or found is None else 0)
    for path in outdated:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(wanted[path])
        print(f"wrote {path.relative_to(ROOT)}")
    for path in stale:
        path.unlink()
        print(f"removed {path.relative_to(ROOT)}")


def pictures(root: Path) -> list[Path]:
    return [root / "docs" / "pictures" / f"tokens_{theme}.svg" for theme in THEMES]


def pages(root: Path, found: Comparison | None, learned: Learning | None) -> dict[Path, str]:
    """Every generated file and what it should hold."""
    docs, directory = root / "docs", root / "cubins"
    manifest, evidence = Manifest(directory / "manifest.json"), Evidence(directory)
    kernels = list(manifest.kernels)
    made = {docs / "kernels" / name: text for name, text in kernel_pages(kernels, evidence).items()}
    made[root / "zoo" / "capi" / "zoo_contract.h"] = header_text()
    layers = read(docs / LAYERS.name)
    if layers:
        made[docs / "kernels" / PAGE] = page(layers)
    performance = {"layers": summary(layers), "quantisers": quantiser_table(kernels, evidence), "limits": limits_table(kernels, evidence)}
    parts = {
        docs / "clients.md": {"clients": clients_table(record.read(docs / record.FILE.name))},
        docs / "formats.md": {"accuracy": accuracy_table()},
        docs / "performance.md": performance,
    }
    if found is not None:
        made |= {path: picture(found, theme) for theme, path in zip(THEMES, pictures(root), strict=True)}
        performance["rivals"] = rivals_table(found)
        made[docs / "kernels" / OTHERS] = libraries_page(found)
        parts[root / "README.md"] = {"caption": caption(found)}
    if learned is not None:
        made |= {path: learning_picture(learned, theme) for theme, path in zip(THEMES, learning_pictures(root), strict=True)}
        parts[docs / "layers.md"] = {"learning": learning_section(learned)}
    return made | {path: between(path, named) for path, named in parts.items()}


if __name__ == "__main__":
    main()
