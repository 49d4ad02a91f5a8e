from zoo.compat.deep_gemm.layouts import *  # noqa: F403
