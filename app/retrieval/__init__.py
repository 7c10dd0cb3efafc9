"""Retrieval: query analysis, ranking, calibration and decay, shared by all features that search."""
