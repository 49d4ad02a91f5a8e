"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "7c9c608c7be3d5ec5de5ff8cb396ace5d241a4acbe04f9dd04b517caf61a1b25"
