"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "29a3593c55ae6a60733afcf5e65eaa9c32d3c7a89175c81511f9056710293cb6"
