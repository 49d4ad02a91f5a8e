"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "d3620696fc6b57f0bb8bf343457f02406637319eaef79db13fff2fc9ac8a9d5a"
