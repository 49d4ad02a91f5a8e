"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "a1beb06b2a1d15f0df9f5687cc0f8b9649520aedcb9b2904e61bbc715cb8549a"
