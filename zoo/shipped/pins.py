"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "7ead1832010056a3c0bdca09d0fc235b4368c74831f8f893a3a2d7b01961bee4"
