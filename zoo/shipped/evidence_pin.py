"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "5966ed2110188ce8778b87f6e1a7c50bf23c5b6fbf922c5cec45e0a971467942"
