"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "01185a199c7ce987d5d7d02aa21e827766313321910d717bf4fd3d4bf4a3b93e"
