"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "38ece58c62e30157a8c3858b966360eae7222e69bcf88a32ee77c46223fc9ea4"
