"""Catalog files from outside: folders on disk, git repositories; read, compared, written to."""
