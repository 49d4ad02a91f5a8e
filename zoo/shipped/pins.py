"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "2abc845dcc4ad778fdb860d3845ac474ce8c7ca48e10cf81fc923f73a7a181bc"
