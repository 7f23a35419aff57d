"""Server of margin."""
