"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "bd0dde04e962256ade4176511aaff5bcb077e4cd7cd4339f1877a635eb6d062a"
