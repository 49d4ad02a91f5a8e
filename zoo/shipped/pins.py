"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "c21eb2bdba7e758eced063e0b87e7669005c7d1561ba7b858574a70fa0ceb8e7"
