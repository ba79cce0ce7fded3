"""Programs: cached sequences of launches."""
