"""tmux for coding agents: durable ACP sessions that sleep when idle."""

__version__ = "0.1.0"
