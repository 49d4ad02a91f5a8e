"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "5bb380eaf709b7fe189bc4c6e3e888f65f05c33427f45ed614347fefac3826d9"
