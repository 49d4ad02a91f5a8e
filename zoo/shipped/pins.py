"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "b0ccabb79965760c99a833d49da1d5ee14adbcda82d59fa5517881e1c6cb4df6"
