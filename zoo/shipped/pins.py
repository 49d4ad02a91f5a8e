"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "da089f01e050ef343457f10d6e54a2ade2a83cf14324ca2353a022ded3e368c8"
