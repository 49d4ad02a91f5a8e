"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "748c5904e372a8ec9340e7511228a94612b3750992767d4513d3f1e8519836f8"
