"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "33c1d63ba1a275518c993e68c3200c496bd9848dd5542b6d97f3042051aba39a"
