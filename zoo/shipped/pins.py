"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "c4d8a1100a5b521045b24e8ed557001a2004df9efa879c8c12f9de99625d9b23"
