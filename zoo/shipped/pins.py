"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "161208cea0f88dba631fe8c77f31dcb49f15caf1d0775e039329df1defe6a688"
