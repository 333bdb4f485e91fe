"""Bytes to messages and back, without I/O. No decision is made here."""
