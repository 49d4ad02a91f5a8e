"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "e9f85a6e31c36129ab1d05e612e3cd28cc472325e519e428f78f6028731bae2a"
