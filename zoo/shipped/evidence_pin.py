"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "122c9edda3d7b0c87aaaee10211ae6b55f3eff9f9ca932b6bd87f2feeda7c747"
