"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "8e0a8bc512cfd0db313eae8c928cb6176f2f8eefcbeeaa3f5ab4c626a3563c01"
