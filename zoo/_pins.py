"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "90a5aa36a437cdc4c946092bbb20b34dd54f378ea604dff97011ab6aa5c61aab"
