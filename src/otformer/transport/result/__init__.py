"""What a solve returns, and the one place that makes it."""
