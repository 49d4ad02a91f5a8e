"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "89c842b9963471393f1a9dfa06e3fcf8ef95a8c32a8bba7c721468359261d4b2"
