"""The asynchronous client. scripts/generate_clients.py makes the synchronous one of it."""
