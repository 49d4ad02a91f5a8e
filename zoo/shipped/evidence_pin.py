"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "8b0962e3c0fd9894a0914f6dc9426cedd21d0d27de7f107d3f7f9c241dfd5c12"
