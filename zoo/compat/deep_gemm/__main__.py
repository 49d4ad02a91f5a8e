import sys

from zoo.compat.deep_gemm.install import main

sys.exit(main())
