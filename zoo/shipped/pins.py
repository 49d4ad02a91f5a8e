"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "8875c0ac297a06ce15c8cbdc0dc14dd0731215e0a96b737a2edb024b6b91c6e1"
