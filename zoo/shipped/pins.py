"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "d51b25018ea39d8dc024e24f37e8593888e3e5209f4cd8c505cd4ead60d27242"
