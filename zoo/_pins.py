"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "3fa058caf48609be446c5757a05a914556947755c92daa3f057b7c24961c3679"
