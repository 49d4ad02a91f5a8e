"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "6f635224756b96b64405fe95fecf48d2adc9806d1b2940c092a0cd7b74803216"
