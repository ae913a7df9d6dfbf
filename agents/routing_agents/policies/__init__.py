"""Neural policies."""
