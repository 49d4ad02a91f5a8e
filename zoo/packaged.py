"""The zoo that comes with the package."""

from __future__ import annotations

from zoo.catalog import Zoo
from zoo.shipped.pins import MANIFEST_SHA256
from zoo.shipped.places import cubins_directory

packaged = Zoo(cubins_directory(), MANIFEST_SHA256)

launch = packaged.launch
call = packaged.call
shapes = packaged.shapes
prepare = packaged.prepare
find = packaged.find
load = packaged.load
kernel = packaged.kernel
