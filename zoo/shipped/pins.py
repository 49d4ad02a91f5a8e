"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "ff6c01397e607bbe6eb906bc4980d5c542f53485205124096ca89596b0038cb5"
