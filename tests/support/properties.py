"""Property tests that write to a store at each example: a quarter of the examples of the others.

`pytest --hypothesis-profile=thorough` tries ten times as many of all that do not say how many they need.
"""

from hypothesis import HealthCheck, settings


def on_a_store() -> settings:
    """For tests whose examples each use records, or a tenant, of their own: they share one store."""
    most = settings().max_examples // 4
    return settings(max_examples=most, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
