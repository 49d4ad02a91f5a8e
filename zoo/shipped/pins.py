"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "95a3006ec8567f9b98a79662549cc99c43ea45efd52fc6ff2b2c959b8d4fcbfd"
