"""What a service manager must know to run the daemon: systemd's user manager and launchd, as text. No I/O."""
