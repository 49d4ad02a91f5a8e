"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "4515486e35da050182161d91f42590cc17dc6924f88bd3c965d036c2a15449af"
