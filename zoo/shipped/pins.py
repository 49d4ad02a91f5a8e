"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "69569f7c128f4e8dfff3693baaeab2920a7078863437ddccd063e080f8b19af4"
