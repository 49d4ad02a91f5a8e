"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "2ed71ffe9e2a1f922675bcbe0b8ec265150e809d70fea9ef7f7633a3f98bd726"
