"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "956b3f9395a0b005bb084bccbd211682ffa69fd2ee869a5e47f77c22c5c9e605"
