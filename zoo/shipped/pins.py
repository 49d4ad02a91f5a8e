"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "ae95cdee7d2ad7cf4725666d92e47ab2ccef4e2f156babbe95753b083d4e36cc"
