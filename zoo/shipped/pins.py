"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "cef72bda124f990ce243b89e358657701bfe20e766f9b2c1b8dd8dc79aea00c0"
