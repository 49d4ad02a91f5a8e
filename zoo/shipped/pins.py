"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "23b4a75a7d9d03e15f892c591e69b17c69082734e52dd9a9db4daafc850568d3"
