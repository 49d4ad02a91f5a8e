"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "70e3fcf01aa3a96cb7d52f1be2f5604a3fa9d2c645559b0764d1bb83c621d630"
