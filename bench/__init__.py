"""Measurements of Tidegate: `python -m bench NAME`. Never part of a test, but for a smoke run that asserts no times."""
