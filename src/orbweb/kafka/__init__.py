"""What the producer and the consumer of items must agree on."""
