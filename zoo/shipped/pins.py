"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "8f973079d143794edfaf98d71c8d69e2957429e580fe181b9d6e51ff044281c1"
