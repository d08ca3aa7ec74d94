"""Measures as pure functions: ranks (one tie rule), recall, detection, calibration, MT quality."""
