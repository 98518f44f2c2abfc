"""Syncs that somebody asked for: given out, waited for, handed on, ended."""
