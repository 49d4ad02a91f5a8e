"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "c941f85fc97484a3c44454196919c396a6055ec9ecc940aa7adb4404cfba6d95"
