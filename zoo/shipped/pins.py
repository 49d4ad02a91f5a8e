"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "d91a71e6bfea7b6ec1874ca08dee7281c8ef532e6f8e98b2a60f45a006f936a7"
