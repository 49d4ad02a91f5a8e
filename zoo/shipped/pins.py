"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "9a0219151a771b0722c7fd4132ea3035d5adc802f2830e725e573f0905b8ac74"
