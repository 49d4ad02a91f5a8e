"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "a3a18e0013fc0a8ff8da45c0910132ecfb602ffcddacfb6514491b817ffc81ad"
