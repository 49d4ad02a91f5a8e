"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "d6e53e93fb16959c8c87a9696ee861f8ad146481dde7175a0cb22204890f4100"
