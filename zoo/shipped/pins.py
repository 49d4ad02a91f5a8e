"""Written by build_cubins.py: the manifest that this zoo belongs to."""

MANIFEST_SHA256 = "523bd61433ceb493b132483fe977ed67c894041d9051f38707f7c4d59fbc1c15"
