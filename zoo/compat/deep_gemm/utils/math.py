from zoo.compat.deep_gemm.casts import *  # noqa: F403
