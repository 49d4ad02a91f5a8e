"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "fa27799dbb7d9f057a7fd00ad30da5add2db4e9dfa264deacf1bc2b180aadecb"
