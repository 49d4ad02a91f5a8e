"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "931636c65e23738fd765f25624c562cb08f2dc991b6a15d8f59c0386afefc30d"
