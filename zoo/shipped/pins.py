"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "6fcbbb6a0eb5ded02db8db0b88d23b6003adc791585988edce0264b0bf50a523"
