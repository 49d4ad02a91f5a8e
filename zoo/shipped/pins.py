"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "e032c872f554d452613971e9b0cafc5588fb690a10d50c0ac259de987f274538"
