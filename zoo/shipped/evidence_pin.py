"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "d2e634331b5a660aabcf3ebf021fb1b3e315db3281dfed2100b37ebe2a838b70"
