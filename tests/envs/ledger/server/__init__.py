"""Server of ledger."""
