"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "385c709c60f3a8bc8001f8d23611147fbeff9bd9d0b9e5e77289366d5ad6ea15"
