"""Which zoo is tested, and how long. A few schedules and examples by default; the whole proof:

ZOO_SCHEDULES=20 ZOO_EXAMPLES=30 pytest tests/gemm_blackwell

ZOO_CUBINS names another folder than the packaged one.
"""

import os

from zoo.catalog import Zoo
from zoo.shipped.packaged import cubins_directory, packaged

CUBINS = os.environ.get("ZOO_CUBINS") or cubins_directory()
ZOO = Zoo(CUBINS) if "ZOO_CUBINS" in os.environ else packaged
SCHEDULES, EXAMPLES = (int(os.environ[name]) if name in os.environ else None for name in ("ZOO_SCHEDULES", "ZOO_EXAMPLES"))
