"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "caa3628db0e16d41f480ebdf64e465b0b38d71eed0a4b8cc03a5f08369a377e7"
