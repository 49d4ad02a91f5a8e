"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "2e3fa92fb8fecbc83f02452f138841519da073693e87f0c91d4264340c75cff5"
