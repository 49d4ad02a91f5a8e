"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "72c609fed9dba3dfca8de58cc8219201c788f94de0cfaa6f5f65af9f30410f75"
