"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "98aa3f89fd6257cecec2860a90ae69cd1dea6fa5d0e072ef2b36ff3f51f405ec"
