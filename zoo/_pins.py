"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "581be22f5390f4e4e0383e17ee7488eed6df696e43488c53e050f1c311349f3c"
