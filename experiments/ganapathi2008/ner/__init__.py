"""Names in the CoNLL-2003 articles (table 1)."""
