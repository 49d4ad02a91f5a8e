"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "9188452745666f2be04f82b6489999ec46f66082e9a86fa191879b4c7e8a28c5"
