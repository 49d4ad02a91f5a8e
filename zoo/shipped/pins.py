"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "f672cf79582f3e83444ccc4aa6900c221f52a043e291aa2dcf99fa4cbaa4e118"
