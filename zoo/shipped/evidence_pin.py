"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "d06a30b5faae5a68c059a9d424a7a5d2e696776f20c839a7ac906b131d429868"
