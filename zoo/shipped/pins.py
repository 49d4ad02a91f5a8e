"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "93bc6778937ccb3add3d6cf50a514e4a514c9a9a53a4cb3fdbb24242efc77e48"
