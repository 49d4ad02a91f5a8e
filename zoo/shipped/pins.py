"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "bb01fe2fc791ac0240a2110cf86fea9289402e4c7ff07d6ce762186d31645997"
