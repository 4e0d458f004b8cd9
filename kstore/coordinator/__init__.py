"""What Kafka's group coordinator and transaction coordinator keep in a store, which they see through two protocols."""
