"""Server of lone."""
