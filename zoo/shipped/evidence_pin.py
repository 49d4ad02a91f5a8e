"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "58896c72ed548063259bee7b15861f672e3e30b593e6bf40a318c47f84e8d562"
