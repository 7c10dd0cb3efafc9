"""What a page asks for before it is there: its modules all at once, as the document names them, and the caller once."""

import re

import pytest
from playwright.sync_api import Route

from tests.console.conftest import Visitor

PAGES = {
    "overview": "Overview",
    "owners": "People and agents",
    "owners/users/mira": "What holds now",
    "owners/users/mira/profile": "Profile",
    "owners/users/mira/facts": "As of",
    "owners/users/mira/graph": "Links",
    "owners/users/mira/procedures": "Procedures",
    "owners/users/mira/data": "Export",
    "owners/agents/front-desk": "Description",
    "owners/agents/front-desk/experience": "What works",
    "owners/agents/workshop/actions": "Actions, newest first",
    "prompt": "Query",
    "memories": "Memories",
    "memories/mem_gone": "Memories",
    "sessions/mira-has-moved": "What was said",
    "documents": "Documents",
    "tasks": "Tasks",
    "findings": "Findings",
    "operations": "Jobs",
    "operations/forget": "Forget",
    "operations/audit": "Audit",
    "record/fact_gone": "is gone",
    "components": "Components",
}
LATER = {"vendor/uplot.mjs", "vendor/cytoscape.mjs"}
"""Libraries of pictures, which the rows do not wait for."""
pytestmark = pytest.mark.slow


NAMED = "Array.from(document.querySelectorAll('link[rel=modulepreload]'), (link) => link.href)"
FETCHED = "performance.getEntriesByType('resource').map(({name}) => name).filter((name) => /[.]m?js$/.test(name))"


@pytest.mark.parametrize(("address", "shows"), PAGES.items())
def test_a_page_names_the_modules_that_it_runs(visitor: Visitor, address: str, shows: str) -> None:
    visit = visitor()
    named = visit.open(address, shows).evaluate(NAMED)
    assert len(named) == len(set(named))
    assert [request for request in visit.requests if "whoami" in request] == [f"GET {visit.base}/v1/whoami"]

    def without_names(route: Route) -> None:
        document = route.fetch()
        links = re.sub('<link rel="modulepreload"[^>]*>', "", document.text())
        route.fulfill(response=document, body=re.sub('(id="imports">).*?<', r"\1{}<", links))

    bare = visitor()
    bare.page.route("**/console/", without_names)
    fetched = bare.open(address, shows).evaluate(FETCHED)
    assert bare.page.evaluate(NAMED) == []
    assert {short(name) for name in fetched} - LATER == {short(name) for name in named}


def short(address: str) -> str:
    """`ui.js` of `http://host/console/0123456789abcdef/ui.js`."""
    return re.sub(".*/[0-9a-f]{16}/", "", address)
