"""The log: SQLite in WAL mode, one writer thread, and the only room that knows SQL."""
