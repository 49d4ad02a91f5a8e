"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "c56e1bf6c7315b6983a3434a1e4f3263c5aa630a62a3d85455354a2d73483c3b"
