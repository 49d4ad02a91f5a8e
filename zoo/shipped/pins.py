"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "e4f1e4adace445a9e48bd861ae54af69d1361a84c10cf925dde05e1d45bd052d"
