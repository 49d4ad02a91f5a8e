"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "15d9b67508b56badde6d47feeb2fa0f37e2b0e76df500ae3566f3f802e70bc8d"
