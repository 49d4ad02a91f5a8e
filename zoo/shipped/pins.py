"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "8560b456acd62a5c73c2d9d1c9ac704f1963125367d8b663530b11030fb43137"
