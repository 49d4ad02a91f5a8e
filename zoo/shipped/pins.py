"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "c5788b18c5d5bed1a3e90faf1eba81aa3907e1d53f410c8e17c840c9d951abef"
