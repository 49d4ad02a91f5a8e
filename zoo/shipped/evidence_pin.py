"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "65030e6eed9467d22d93d10bf21e056019bbc5aed84a323ff7c9db77b149c4cf"
