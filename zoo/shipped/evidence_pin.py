"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "d8398ab925f44b3f66e6ae21cf555d4f08d403cc1c7b1e33d545c764a61fa742"
