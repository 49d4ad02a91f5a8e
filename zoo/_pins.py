"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "2cc3e5ed1c834df87592ebc7d1777b58e44a86f91d845d0945369bd6baa3dfc3"
