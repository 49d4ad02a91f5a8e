"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "27e67faad8edf903fa01cf675008bf0467ab5da9e3f3662159e8786f8925713e"
