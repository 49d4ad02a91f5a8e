"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "752ebde71f9530c82392ccdd823879679f0db9a70da9c874b1a599cc299fc563"
