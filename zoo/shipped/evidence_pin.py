"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "53e0df36921a7da55fc9b6e03341b46005171fac6e9e5713831460129c4cc5f0"
