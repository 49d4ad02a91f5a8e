"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "ed8d26508fa9a54655d4b251518deb838c8b88a8f59abe1b0c8319865827d838"
