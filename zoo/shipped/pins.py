"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "c7d907c6d4de8bf73b810ee7b2374b4de9d71ca170374033656de0cc4a75aa5a"
