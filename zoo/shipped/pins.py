"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "320cde957867721b42e29d95eb7b294cdb522716f7a6f0a425b617d028abea34"
