"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "7abfd746f9901e3745190677912a2ad06f6061e57e24de061b8bb0e45c5c8b84"
