"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "7281e8cc42d25832c0d8b689e10de156b6dac89e06e16a4920586b742ab8cafd"
