"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "dc2bdfd4b13aed6475dc8b9ac82ddb090e08e99b1e1e8f8ad43ee9bd9c08c6e5"
