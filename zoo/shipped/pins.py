"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "eaf0d0a431f0c1d35519c2198bfdaeb5d64299b2515fd5e5e2a7479e92dd93fb"
