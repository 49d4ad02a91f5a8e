"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "c44ad4bf1828f37e3669df65ee49e8b750ae62c570db81b7444be33eda108f07"
