"""The nouns: frozen values and enums. No clock, no I/O; every other room may import this one."""
