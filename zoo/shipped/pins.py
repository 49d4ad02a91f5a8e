"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "1bfb94c64faafadbfdc880f500e76b7ad3d5c3c5664603956d1f3c87fde9c8d3"
