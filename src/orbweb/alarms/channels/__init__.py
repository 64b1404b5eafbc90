"""Ways to people: each sends a letter and says what the service itself answered."""
