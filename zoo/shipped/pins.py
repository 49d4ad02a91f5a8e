"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "d727544c066b6f2f41240e92fe6fd9981873fad066a58d6efa43b276afea9237"
