"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "c98ef4fcb772becdbbfb60c9af41eaf525e7b00e58c0eb4ce3476ef60e2dde70"
