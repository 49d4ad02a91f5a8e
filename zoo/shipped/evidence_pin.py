"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "0e33259a879a15fe8555d6d01bcae7e92571d5b2d809d3024b426523f18d858f"
