"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "6f9fd263cb641b3072ac0766d86db033b5855b48762ccd52e36076bb441e5828"
