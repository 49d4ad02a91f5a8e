"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "ac592edfc06092c0a73dc5393a653982a617d086960292ea6d167d72498cb4cf"
