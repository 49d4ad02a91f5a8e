"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "32299cfe36dd94744e2bd48d522f8c08542480cd1122501b94c30ff441baf3a5"
