"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "f98e047cefea8211b7bae564469fc0448a4a5cd0ed516f610f55668d793e211e"
