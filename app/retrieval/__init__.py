"""What the ranking reads out of a query before anything is searched: pure functions."""
