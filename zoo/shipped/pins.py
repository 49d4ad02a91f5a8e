"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "d3f9a2c0446cb0de4bf5c86e117d8d384fec3449f3a0fa406af30868ef15687d"
