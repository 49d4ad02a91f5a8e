"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "a079ae97ac3ac1b6b2bb98ba54c580658dbf4492aefee0f62aea49739c05df02"
