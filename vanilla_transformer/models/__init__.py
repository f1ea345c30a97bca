"""What a saved folder carries: configurations, networks and searches. It is flat, as a model's repository is."""
