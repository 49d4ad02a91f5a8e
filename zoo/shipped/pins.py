"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "061de4fbb17f00625b17b5438edea4f34e8ddff2ca6cd58f1cbc71a113c94992"
