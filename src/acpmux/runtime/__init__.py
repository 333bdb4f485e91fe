"""The world: the clock, tasks, config files, logs, and the daemon's end of its hosts."""
