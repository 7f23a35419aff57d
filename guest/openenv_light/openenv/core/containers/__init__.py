"""Where environment servers run."""
