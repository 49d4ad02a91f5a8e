"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "61ae367bac235aee7e75d3ea93096498b64aa30bbee07de3023e21ddf3913343"
