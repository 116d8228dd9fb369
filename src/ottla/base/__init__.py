"""Base: ids, errors, limits and ports. Imports nothing else of Ottla."""
