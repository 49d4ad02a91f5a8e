"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "23d1572d793e1fdd11b8e133c83e09575e50d562ab0cf1686e9c443bf8a8412b"
