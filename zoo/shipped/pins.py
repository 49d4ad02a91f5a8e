"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "50d0bc5b9e8be1d192096c90076944fc970b76cdc57f4fec34070c15588716b0"
