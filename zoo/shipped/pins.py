"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "0ff9c44c47f04e6e254f3c013980dd8c722cb26b946c82584b5208d65a90072d"
