"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "2826578ad491af1f5c23fd0ef20e00b68f927e75499f14192c6b66dcc92f3b30"
