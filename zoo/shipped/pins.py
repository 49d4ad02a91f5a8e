"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "630aaa42cda3822c7629f599f4eab13a8e6d6346dcf473fe759cfe023c143e86"
