"""Which zoo is tested, and how long. A few schedules and examples by default; the whole proof:

ZOO_SCHEDULES=20 ZOO_EXAMPLES=30 pytest tests/gemm_blackwell

ZOO_CUBINS names another folder than the packaged one.
"""

import os

from zoo.catalog import Zoo
from zoo.packaged import packaged
from zoo.shipped.places import cubins_directory

CUBINS = os.environ.get("ZOO_CUBINS") or cubins_directory()
ZOO = Zoo(CUBINS) if "ZOO_CUBINS" in os.environ else packaged
SCHEDULES, EXAMPLES = (int(os.environ[name]) if name in os.environ else None for name in ("ZOO_SCHEDULES", "ZOO_EXAMPLES"))
