"""The shadow check: a share of all launches is computed again by another device and compared."""
