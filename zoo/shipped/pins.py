"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "2cb3085a63156c9c110b720503326e41c047fd04cca6710c7b9322a208ac1925"
