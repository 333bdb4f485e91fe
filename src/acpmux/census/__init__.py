"""The heart: may this harness end? Standard library only, small enough for the host to import."""
