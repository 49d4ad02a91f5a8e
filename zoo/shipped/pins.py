"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "27329b7d2d136e89b1f53320eed0e7e9491f8dc39a912dd69bd11fd20fced6dc"
