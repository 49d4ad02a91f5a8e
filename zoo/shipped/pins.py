"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "3b5784124ff547245c5e91713ff603cc01abd0f98edaf80e25897d75aedbab8c"
