"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "2cb36541fb083f892bda3e00efd23faa19efc6e3a1fd0a7bd6c689bc2dd413a9"
