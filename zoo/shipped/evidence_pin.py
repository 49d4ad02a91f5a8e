"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "51c4707ef86853bd45de3a1eae7bfcee039cd0c91de2c5c4bf12cce8f0d66064"
