"""Server of tortoise."""
