"""What is known of each agent, as data, and the built-in one that shows the product without a key or a network."""
