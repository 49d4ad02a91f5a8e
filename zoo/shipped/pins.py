"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "e99d1be23b3ebe0997a2bf030d3c99a6fb283d6c3c902acd1c6f416c71ef4f17"
