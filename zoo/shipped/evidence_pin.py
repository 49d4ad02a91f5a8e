"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "3365dfd767d42d3e9ff9ffa222de2edca0ea8ce19f16e737f47d7ad44d5ca5b1"
