"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "20e2abdc9ab837a5c958bd63ec30b3b7cfe84203dd8c91fc2a29c063721d1d78"
