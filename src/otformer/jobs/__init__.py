"""Long jobs in resumable parts, over processes or Ray."""
