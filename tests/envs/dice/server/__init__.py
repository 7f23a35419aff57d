"""Server of dice."""
