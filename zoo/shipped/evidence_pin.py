"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "4bf4716a8698ca50e5c1ff34ae20215c26dd83b33c5813ca39e767eaf56169b1"
