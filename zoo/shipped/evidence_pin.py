"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "2886d753a5f3f97e39c09f9ed53b5a2014c073856ac8f1e2147129695fe96b6c"
