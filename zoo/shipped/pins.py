"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "a0ea9f33655d4e0e371e5d2b3e068749014053f1d666141aa9c04f2bdce9bcff"
