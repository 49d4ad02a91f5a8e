"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "1c9feab82ec374c4b637edb33f6c587cb9c801ac7d65b27cb0d5fafe7a771e7c"
