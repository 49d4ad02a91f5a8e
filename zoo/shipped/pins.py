"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "9b59edd86e8b41a8aa6428db42dbf6b6467d785355c40e953ef54dc5f6ca50bc"
