import pytest

from app.core.clock import from_ms, to_ms, zone_named


def test_milliseconds_are_the_moment_that_they_were_made_of() -> None:
    for moment in ("2026-06-17T23:30:00.123Z", "1969-12-31T23:59:59.999Z", "0001-01-01T00:00:00.000Z"):
        assert from_ms(to_ms(moment)) == moment


@pytest.mark.parametrize("name", ["Mars/Olympus", "../../etc/passwd", "Europe", "", "\ud800", "a\0b"])
def test_an_unknown_zone_is_a_value_error(name: str) -> None:
    with pytest.raises(ValueError, match="time zone"):
        zone_named(name)


def test_a_zone_is_known_by_its_name() -> None:
    assert zone_named("Europe/Berlin").key == "Europe/Berlin"
