"""What every page looks like: contrast and all else that axe sees, in both schemes, and no page wider than a phone."""

import pytest

from tests.console.conftest import Visitor

pytestmark = pytest.mark.before_store
PHONE = {"width": 375, "height": 800}
VIEWS = {
    "overview": ("overview", "Growth"),
    "memories": ("memories?query=what%20tension%20for%20spokes&user_id=priya", "Why"),
    "sessions": ("sessions/mira-has-moved", "What came of it"),
    "prompt": (
        "prompt?query=Which%20bike%20does%20Mira%20ride%3F&agent_id=front-desk&user_id=mira&token_budget=400",
        "dropped:",
    ),
    "answer": ("prompt?session_id=mira-has-moved&turn=2&agent_id=front-desk&user_id=mira", "dropped:"),
    "people": ("owners", "Front desk"),
    "person": ("owners/users/mira", "What changed lately"),
    "profile": ("owners/users/mira/profile", "Interactions"),
    "facts": ("owners/users/mira/facts?status=any", "Mira rides"),
    "graph": ("owners/users/jonas/graph", "Choose an entity to see up to"),
    "data": ("owners/users/mira/data", "Download the export"),
    "agent": ("owners/agents/front-desk", "Tokens of a context"),
    "experience": ("owners/agents/front-desk/experience", "Pitfalls"),
    "procedures": ("owners/agents/workshop/procedures", "True a wheel"),
    "actions": ("owners/agents/workshop/actions", "By type"),
    "tasks": ("tasks/lisbon-wheels", "Working memory, as the model sees it"),
    "findings": ("findings?status=any", "Contradicted when it was stored"),
    "operations": ("operations", "Run"),
    "forget": ("operations/forget", "Show what would go"),
    "keys": ("operations/keys", "There are no keys."),
    "audit": ("operations/audit", "append messages"),
    "settings": ("operations/settings", "RECALLD_DATA_DIR"),
}
OPEN = "document.querySelectorAll('main details').forEach(part => { part.open = true; })"


@pytest.mark.parametrize("scheme", [pytest.param("light", marks=pytest.mark.release), "dark"])
def test_every_page_has_no_fault_in(visitor: Visitor, scheme: str) -> None:
    visit = visitor(color_scheme=scheme)
    for address, ready in VIEWS.values():
        page = visit.open(address, ready)
        page.evaluate(OPEN)  # what is closed has no contrast to measure
        page.wait_for_timeout(300)  # charts and the graph are drawn, and what was opened is asked for
        visit.check()
        wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, f"{address} is {wide} pixels wider than the window"


def test_a_phone_shows_every_page_without_scrolling_sideways(visitor: Visitor) -> None:
    visit = visitor(viewport=PHONE)
    for address, ready in VIEWS.values():
        page = visit.open(address, ready)
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], address
        page.evaluate(OPEN)
        page.wait_for_timeout(300)
        visit.check()
