"""The transaction coordinator: transactional ids and their transactions, in `__transaction_state`."""
