"""`detect_anomaly`: which call made the first NaN or infinity."""
