"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "8b061439cf2d012e0b6c3eaa3acfefbdfb46c7956a02383b9fe9b258771e7dfe"
