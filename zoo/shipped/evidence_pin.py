"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "2e2de0f5575ecde79cb958e6348d9e82022556e2f657d3801e5b1a4eba1fd585"
