"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "0fd7f60da6ea660b71aa75d4e0e05f78bcbc72c1d27a6f7f4e7b962ad8558133"
