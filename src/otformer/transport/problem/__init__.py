"""What a caller hands over, and what comes back."""
