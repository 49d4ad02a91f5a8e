"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "5f4675506c3b7ef5dfe6d6042f9f207112bd23151f3a1411ac0dabcc0ed430b0"
