"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "2d0913c9f036db9cbc66fa58051fd62110c2994cf2c749c33c05d801d0a57d6e"
