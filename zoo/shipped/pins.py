"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "aaae52b9c5afeb6914cfecb6081ca8b6aa883a4e86cd8f2edcbe8a0e7200c437"
