"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "5f36bef3e909178d3762b37370490104f49cf6c320fddbfb90a0d8e523380b29"
