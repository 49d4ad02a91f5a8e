"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "8e9639ab92de85ec5b73b6478a9980fa1ee5fe4e7555170407079320b9bd691b"
