"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "e5493c61bb858dc7edaebdc17bf0805800c143f13fa859bb931a68bbc5396fb4"
