"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "0432fcaeb722ab38dc8409e414ab5cd745763fe65773100e8cbb58ca87b8508d"
