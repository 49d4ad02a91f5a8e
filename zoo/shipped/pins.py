"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "dffc7f241309c7bf6a01fe8e22c266389417c145e955258373d0c7c39049da4a"
