"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "94ad76ac194eb7f3ce9dcda79245fb29799f6d93ca6e5b7cb4411a7195871f1f"
