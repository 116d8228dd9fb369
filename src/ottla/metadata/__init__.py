"""Metadata: what the cluster consists of, who may change it and how; pure, on a store behind a port."""
