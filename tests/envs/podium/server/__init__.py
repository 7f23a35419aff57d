"""Server of podium."""
