"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "a2516b7549c735f8aa3a3ec1b2cf8d8f9fa424162cc5b319f69c326522f8e9c5"
