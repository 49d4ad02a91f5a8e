"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "064eceeed4ad18b918cde5cf52b4b6c84d5367bca22752431315348bb719a9fa"
