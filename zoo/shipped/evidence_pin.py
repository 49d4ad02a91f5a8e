"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "8eb459c102c6faee7f4790a012bb3b7e7859b135182a7c275600a825f85285ab"
