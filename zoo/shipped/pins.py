"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "c1d9015d4dd03c35abebc0e2bf4671a81fa790fdc24ac13577789948e450437f"
