"""Random numbers: Philox by seed and position, distributions, samplers that reject."""
