"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "8f4bb6109dfdccdd0f55d087858db593a275f551a98845111e32bd72ff4327d5"
