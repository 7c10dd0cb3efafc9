"""The page of documents: a file is sent, read and deleted."""

import re

import pytest
from playwright.sync_api import expect

from tests.console.conftest import Visit

pytestmark = pytest.mark.before_store


def test_a_file_is_sent_found_by_its_passages_and_deleted(visit: Visit) -> None:
    page = visit.open("documents?user_id=jonas", "Documents")
    expect(page.get_by_text("No document. Send one:")).to_be_visible()
    page.get_by_label("Send a file").set_input_files(
        {"name": "fern.md", "mimeType": "text/markdown", "buffer": b"# Water\nEvery other day.\n# Soil\nPeat."}
    )
    row = page.get_by_role("region", name="List of documents").locator("li", has_text="fern.md")
    expect(row).to_contain_text(re.compile(r"2 passages · version 1"))
    visit.check()
    row.get_by_role("link", name="2 passages").click()
    expect(page.get_by_text("Every other day.")).to_be_visible()
    page.go_back()
    row.get_by_role("button", name="Delete fern.md").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_text("No document. Send one:")).to_be_visible()
    visit.check()
