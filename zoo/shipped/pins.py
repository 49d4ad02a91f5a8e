"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "884b03f3a8d1ec9695b81236684916efefaf0df495bd1a473df6968be07dbbb7"
