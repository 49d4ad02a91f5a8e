"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "dd98dce11fe06158636ade15b558894bb4e592d1ba09cee5a0e8947469a612c4"
