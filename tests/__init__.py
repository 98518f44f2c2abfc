"""Tests: the same folders as the package, plus support/."""
