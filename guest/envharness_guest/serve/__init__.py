"""What runs in the workers of an environment server: loads a target, forks, steps."""
