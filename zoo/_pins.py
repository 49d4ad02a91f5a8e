"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "f7b5e1c0c2134d5cb2f6e800ed11fbf897737588eed5684acd0a735d2cd5a1ed"
