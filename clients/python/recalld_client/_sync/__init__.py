# Made from _async/__init__.py by scripts/generate_clients.py; do not edit.
"""The synchronous client."""
