"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "f3531b7418cd389f4c7220d0145dccd13845d59fb71d831a72cbd87ce2a50c17"
