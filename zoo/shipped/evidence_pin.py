"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "d8cde6add8b8e77664d04209ffd53caf6f9d202169b9698e2b05afeba227902e"
