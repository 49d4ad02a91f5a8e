"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "871b1e056d26efc8e4dbe75b4dff242522f132d963ff086228ed47bf720d1da6"
