"""Who mirrors each repo: pure. Facts come in as events, writes and actions go out as decisions."""
