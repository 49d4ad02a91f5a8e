"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "ef6ac9b0fafcaca598694b1a36c7e81b683d81c4e4c4a94ca55954b1aaeaec6d"
