"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "be827f0c4aaff99f0198dfbe14657311d7c5cce499e54c60d161b6381799ada3"
