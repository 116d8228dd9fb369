"""Metadata: what the cluster consists of and how that is changed; pure, over a store port."""
