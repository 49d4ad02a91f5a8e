"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "6f8d7a9fa179a9d50521312d6e9fbd310a1b38975eb4ce17c8baa049ccbdabd6"
