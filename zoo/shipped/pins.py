"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "855c99b1384f51dc33e085527730f50d02487014353234e0c1d5a2603ad45d05"
