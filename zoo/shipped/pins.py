"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "af706ac090ecc597d1e46d8a9a9a2ef460e342984ec9d5e87915384830e2e40c"
