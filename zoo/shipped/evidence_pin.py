"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "375c91d9a5e00a9fa148f397416c9a93578d101efdb6924876dc46789b09b888"
