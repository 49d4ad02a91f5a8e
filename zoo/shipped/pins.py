"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "e733a086ba054be91a71ea48d5eaec2d4ce54bf860987dc0d5fa9b1cfffe7b94"
