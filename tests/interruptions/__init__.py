"""What is stopped at any moment, by Ctrl-C, SIGTERM, a kill or a full disk, leaves what the next run understands."""
