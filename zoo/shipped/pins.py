"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "61adacc112535757279790e597b914ba6085e278e6a25d80fb9a4ed368c03260"
