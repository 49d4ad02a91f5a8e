"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "65c6b3651982b5300083ec68397ba115e76c2b158ecdbf8723e08b1e1f93105b"
