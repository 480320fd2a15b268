"""What a run's folder says, for people."""
