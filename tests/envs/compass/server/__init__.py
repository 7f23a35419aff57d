"""Server of compass."""
