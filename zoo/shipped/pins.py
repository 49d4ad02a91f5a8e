"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "88706b24ac80560a90ffd8e00cc60fa0b353be4a8ee8f1dbd46e0a481b82d363"
