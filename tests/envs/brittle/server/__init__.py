"""Server of brittle."""
