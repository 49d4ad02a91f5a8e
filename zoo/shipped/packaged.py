"""The zoo that comes with the package."""

from __future__ import annotations

from pathlib import Path

from zoo.catalog import Zoo
from zoo.shipped.pins import MANIFEST_SHA256


def cubins_directory() -> Path:
    """`zoo/cubins` in a wheel, `cubins` beside the package in a checkout."""
    package = Path(__file__).resolve().parent.parent
    inside = package / "cubins"
    return inside if inside.is_dir() else package.parent / "cubins"


packaged = Zoo(cubins_directory(), MANIFEST_SHA256)

launch = packaged.launch
prepare = packaged.prepare
find = packaged.find
load = packaged.load
kernel = packaged.kernel
