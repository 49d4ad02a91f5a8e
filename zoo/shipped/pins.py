"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "01797bb37d0027e99110e81ab67ec2970a56c2d0a158bb43504c896dfac6e219"
