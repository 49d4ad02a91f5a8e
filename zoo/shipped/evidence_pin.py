"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "0fcd35d50816b9f57e3a60952d4dca6b120cf3c081a64203699c9bc940ccdc79"
