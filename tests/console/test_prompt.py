"""The page of the prompt: what it shows is what the service answers to the request that it writes down."""

import json
import re
import shlex
import subprocess
import sys
from collections import Counter

import pytest
from playwright.sync_api import expect

from app.context.sources import SOURCES
from tests.console.conftest import Visit
from tests.support.server import Server

pytestmark = pytest.mark.before_store
QUERY = "prompt?query=Which%20bike%20does%20Mira%20ride%3F&agent_id=front-desk&user_id=mira"


def test_an_agent_that_is_not_registered_is_offered(visit: Visit, server: Server) -> None:
    body = {"agent_id": "newcomer", "user_id": "sam", "content": "Sam rides a recumbent bike"}
    server.client.post("/v1/memories", json=body).raise_for_status()
    page = visit.open("prompt?query=Which bike does Sam ride%3F&user_id=sam", "Which agent asks?")
    offered = page.get_by_role("main").get_by_role("button", name="newcomer")
    assert offered.get_attribute("title", timeout=5000).startswith("1 memory, last ")  # type: ignore[union-attr]
    offered.click()
    expect(page.locator(".wrapped pre")).to_contain_text("recumbent")


def test_a_prompt_is_made_of_what_was_typed(visit: Visit) -> None:
    page = visit.open("prompt", "A query and an agent are needed.")
    visit.check()
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.type("Which bike does Mira ride?")
    page.wait_for_url("**query=Which**")
    page.get_by_role("button", name="Front desk").click()
    page.get_by_label("Person").select_option("mira")
    page.get_by_role("button", name="Make the prompt").click()
    prompt = page.locator(".wrapped pre")
    expect(prompt).to_contain_text("<recalld_context>")
    expect(prompt).to_contain_text("The user rides Halcyon E3")
    kept = page.get_by_role("region", name="Kept")
    entry = kept.locator("li", has_text="The user rides Halcyon E3").last
    expect(entry.get_by_role("link", name="“The Halcyon E3 says error 26”")).to_be_visible()  # nobody asked
    expect(entry.get_by_role("link", name="open the record")).to_be_hidden()
    entry.get_by_text("More", exact=True).click()
    expect(entry.get_by_role("link", name="open the record")).to_be_visible()
    visit.check()


def test_an_entry_says_what_of_it_is_outdated(visit: Visit) -> None:
    page = visit.open("prompt?query=Where does Mira live?&agent_id=front-desk&user_id=mira&token_budget=400", "Kept")
    entry = page.get_by_role("region", name="Kept").locator("li", has_text="I live in Altona")
    expect(entry).to_contain_text("outdated: lives in Altona")


def test_a_smaller_budget_drops_more_and_says_why(visit: Visit, server: Server) -> None:
    page = visit.open(QUERY, "The request")
    slider = page.get_by_label("Budget in tokens")
    slider.fill("300")
    page.get_by_text(re.compile(r"\d+ of 300 tokens")).wait_for()
    dropped = page.get_by_role("region", name="Dropped")
    reason = dropped.get_by_text(re.compile("^Over budget"))
    body = {"query": "Which bike does Mira ride?", "agent_id": "front-desk", "user_id": "mira", "token_budget": 300}
    answer = server.client.post("/v1/context", json=body).json()
    expect(page.locator(".wrapped pre")).to_have_text(answer["text"])
    counts = Counter(item["reason"] for item in answer["dropped"])
    expect(dropped.locator("summary").first).to_contain_text(f"{len(answer['dropped'])} dropped:")
    expect(dropped.locator("summary").first).to_contain_text(f"{counts['budget']} over budget")
    expect(reason).to_contain_text(f"{300 - answer['tokens']} tokens left")
    explained = server.client.post("/v1/context", json={**body, "explain": True}).json()
    misfits = [entry for one in explained["dropped"] if one["reason"] == "budget" and (entry := one["entry"])["needed"]]
    for more in dropped.get_by_text(re.compile(r"^\d+ more$")).all():
        more.click()
    row = dropped.locator("li", has_text=misfits[0]["text"][:80]).first
    expect(row).to_contain_text(f"needs {misfits[0]['needed']} tokens, {misfits[0]['left']} were left")
    headings = re.findall(r"^## (.+)$", answer["text"], re.MULTILINE)
    expect(page.get_by_role("region", name="Kept").locator("h3")).to_contain_text(headings)
    assert {one["entry"]["type"] for one in explained["dropped"]} > {"message", "fact", "experience", "action"}
    dropped_texts = dropped.locator(".list > li .text")
    expect(dropped_texts).to_have_count(len(explained["dropped"]))
    drawn = sorted(text[:120] for text in dropped_texts.all_text_contents())  # the end of a long one is folded
    assert drawn == sorted(one["entry"]["text"][:120] for one in explained["dropped"])
    expect(dropped.locator(".from").first).to_be_visible()  # nobody asked where it comes from
    shown = page.get_by_role("group", name="Tokens of the budget by section").locator("li").all_inner_texts()
    frame = answer["tokens"] - sum(section["tokens"] for section in answer["sections"])
    assert frame > 0
    parts = zip(headings, answer["sections"], strict=True)
    assert shown == [f"{heading} {section['tokens']}" for heading, section in parts] + [
        f"Opening and closing lines {frame}"
    ]


def test_the_keyboard_moves_a_slider_and_the_address_keeps_it(visit: Visit) -> None:
    page = visit.open(QUERY, "The request")
    page.get_by_text("Limits: the least").click()
    page.get_by_label("Least score").focus()
    expect(page.get_by_label("Least score")).to_be_focused()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    page.wait_for_url(re.compile(r"min_score=0\.03"))
    page.reload()
    expect(page.locator("label", has_text="Least score").locator("output")).to_have_text("0.03")
    page.get_by_text("Sections: what may be in it").click()
    page.get_by_label("Memories", exact=True).uncheck()
    page.wait_for_url(re.compile("exclude=memories"))
    page.get_by_text("of 4000 tokens").or_(page.get_by_text("of 1500 tokens")).first.wait_for()
    expect(page.locator(".legend")).not_to_contain_text("Memories")


def test_a_link_that_was_followed_is_not_taken_back_by_what_was_typed_before(visit: Visit) -> None:
    keeps_timers = """const set = setTimeout;
        window.timers = [];
        window.setTimeout = (act, ...others) => { window.timers.push(act); return set(act, ...others); };"""
    visit.page.add_init_script(keeps_timers)
    page = visit.open(QUERY, "The request")
    page.evaluate("window.timers = []")
    page.get_by_label("Query").fill("Which helmet?")
    page.wait_for_url(re.compile("helmet"))  # by its timer, which on a busy machine runs only after a click on a link
    page.evaluate("location.hash = '#/findings?user_id=jonas'; window.timers.forEach((act) => act())")
    page.get_by_role("heading", name="Findings", exact=True).wait_for()
    assert "findings" in page.url


def test_the_request_works_as_written(visit: Visit, server: Server) -> None:
    page = visit.open(f"{QUERY}&token_budget=300&citations=ids", "The request")
    code = page.locator("section", has=page.get_by_role("heading", name="The request")).locator("pre")
    arguments = shlex.split(code.inner_text().replace("\\\n", " "))
    assert arguments[0] == "curl"
    body = json.loads(arguments[arguments.index("-d") + 1])
    expected = server.client.post("/v1/context", json=body).json()["text"]
    assert "Halcyon" in expected
    ran = subprocess.run(arguments, check=True, capture_output=True, text=True, timeout=60)
    assert json.loads(ran.stdout)["text"] == expected
    page.get_by_role("button", name="Python").click()
    ran = subprocess.run(
        [sys.executable, "-c", code.inner_text()], check=True, capture_output=True, text=True, timeout=60
    )
    assert ran.stdout == f"{expected}\n"
    page.get_by_role("button", name="TypeScript").click()
    expect(code).to_contain_text("await fetch(")
    expect(code).to_contain_text('"token_budget": 300')


def test_an_answer_leads_to_the_prompt_behind_it_built_again(visit: Visit, server: Server) -> None:
    page = visit.open("sessions/mira-has-moved", "What came of it")
    page.locator("#turn-2").get_by_role("link", name="Why did it say that?").click()
    answer = page.get_by_role("region", name="The answer")
    expect(answer).to_contain_text("I moved to Bergedorf, so I commute 23 km a day now.")
    expect(answer).to_contain_text("Does the Kestrel still do")
    expect(answer).to_contain_text("what was sent is not kept")
    messages = server.client.get("/v1/sessions/mira-has-moved/messages").json()["items"]
    prompt = page.locator(".wrapped pre").first
    expect(prompt).to_contain_text("rides Kestrel 28")
    expect(prompt).to_contain_text("home: Altona")  # as it was known then
    for later in ("Bergedorf", "Halcyon", "Congratulations"):
        expect(prompt).not_to_contain_text(later)
    replaced = page.get_by_role("region", name="Replaced since")
    expect(replaced.get_by_role("link", name="Mira commutes 14 km a day.")).to_be_visible()
    code = page.locator("section", has=page.get_by_role("heading", name="The request")).locator("pre")
    arguments = shlex.split(code.inner_text().replace("\\\n", " "))
    body = json.loads(arguments[arguments.index("-d") + 1])
    assert body["now"] == body["as_of"] == body["known_at"] < messages[0]["timestamp"]
    assert server.client.post("/v1/context", json=body).json()["text"] == prompt.inner_text()
    dropped = page.get_by_role("region", name="Dropped")
    home = dropped.locator("li", has_text="The user lives in Altona")
    expect(home).to_contain_text("same as [3]")  # nobody opened it
    for more in dropped.get_by_text(re.compile(r"^\d+ more$")).all():
        more.click()
    quote = dropped.locator("li", has_text="Quote for a pair of touring wheels")
    expect(quote).to_contain_text("Front desk's own")  # no list of the person has it
    expect(quote).to_contain_text(re.compile(r"weak\s*0\.\d+ %"))
    kept = page.get_by_role("region", name="Kept")
    altona = kept.locator("li", has_text="I live in Altona, commute")
    expect(altona).to_contain_text("strong")
    expect(altona).not_to_contain_text("outdated")  # it held at that moment
    action = kept.locator("ul.list > li", has_text="Quote for a yearly service")
    expect(action).to_contain_text("weak")
    expect(action).to_contain_text("Front desk's own")
    lesson = dropped.locator("li", has_text="Ask for the luggage")
    expect(lesson).to_contain_text("Front desk's own")
    expect(lesson.get_by_role("link", name="Where from")).to_be_visible()
    expect(altona).to_contain_text(re.compile(r"Mira, \d{4}-\d\d-\d\d, turn 1 of mira-first-visit"))
    expect(altona).not_to_contain_text("own")
    expect(kept.locator("ul.list > li", has_text="home: Altona")).to_contain_text("“I live in Altona”")
    visit.check()
    visit.open("prompt?session_id=mira-has-moved&turn=4&agent_id=front-desk&user_id=mira", "The request")
    expect(prompt).to_contain_text("Congratulations")  # the turns before it are part of it
    page.get_by_text("What the prompt is built with").click()
    page.get_by_label("Budget in tokens").fill("200")
    page.wait_for_url(re.compile("turn=4.*token_budget=200"))
    page.get_by_text(re.compile(r"of 200 tokens")).wait_for()
    page.get_by_role("navigation", name="Pages").get_by_role("link", name="Prompt").click()
    expect(page.get_by_role("searchbox")).to_have_value("")
    visit.check()


def test_turns_of_one_time_and_an_answer_to_nobody_are_told(visit: Visit, server: Server) -> None:
    said = [{"role": ("assistant", "user")[at % 2], "content": f"line {at + 1}"} for at in range(5)]
    of = {"agent_id": "front-desk", "user_id": "sam"}
    server.client.post("/v1/sessions/at-once/messages", json={**of, "messages": said}).raise_for_status()
    page = visit.open("prompt?session_id=at-once&turn=5&agent_id=front-desk&user_id=sam", "The request")
    expect(page.get_by_text("Earlier turns of the session were stored with the same time")).to_be_visible()
    page = visit.open("prompt?session_id=at-once&turn=1&agent_id=front-desk&user_id=sam", "line 1")
    expect(page.get_by_text("No turn of a person that could be asked again stands before it.")).to_be_visible()
    page = visit.open("prompt?session_id=at-once&turn=9&agent_id=front-desk&user_id=sam", "no such turn")
    visit.check()


def test_messages_are_drawn_as_messages(visit: Visit) -> None:
    page = visit.open(f"{QUERY}&format=messages&session_id=jonas-before-the-tour", "The request")
    expect(page.get_by_role("heading", name="user", exact=True).first).to_be_visible()


def test_a_refused_request_says_why(visit: Visit) -> None:
    page = visit.open(f"{QUERY}&session_id=a%2Fb", "The request")
    expect(page.get_by_role("alert")).to_contain_text("422")


def test_a_repetition_that_was_left_out_names_the_entry_that_says_the_same(visit: Visit) -> None:
    address = "prompt?query=Where+does+Mira+live%3F&agent_id=front-desk&user_id=mira&token_budget=400"
    page = visit.open(address, "The request")
    dropped, kept = (page.get_by_role("region", name=name) for name in ("Dropped", "Kept"))
    expect(dropped.locator("li", has_text="The user has name Mira")).to_contain_text("same as [2]")
    expect(kept.locator("li", has_text="[2]")).to_contain_text("name: Mira")
    for summary in dropped.locator("li", has_text="session of").all():
        expect(summary).to_contain_text(re.compile(r"needs \d+ tokens, \d+ were left in Summary"))


def test_in_one_column_what_was_kept_comes_before_what_was_dropped(visit: Visit) -> None:
    for width, beside in ((1440, True), (768, False), (390, False)):
        visit.page.set_viewport_size({"width": width, "height": 900})
        page = visit.open(QUERY, "The request")
        tops = [
            page.locator("section", has=page.get_by_role("heading", name="The prompt")).bounding_box(),
            page.get_by_role("region", name="Kept").bounding_box(),
            page.get_by_role("region", name="Dropped").bounding_box(),
        ]
        prompt, kept, dropped = (box["y"] for box in tops if box)
        assert (prompt == kept < dropped) if beside else (prompt < kept < dropped)


def test_the_intent_says_what_it_changes_and_why(visit: Visit) -> None:
    page = visit.open(QUERY, "The request")
    budget = page.locator("section", has=page.get_by_role("heading", name="Budget"))
    expect(budget).to_contain_text("Intent recall: memories and facts count 1.25 times as much, because something")
    page.get_by_label("Intent").select_option("execute")
    expect(budget).to_contain_text("Intent execute: procedures count 1.5 times")
    expect(budget).to_contain_text("as you set it")
    factors = {source.section: dict(source.boosts) for source in SOURCES if source.boosts}
    assert factors == {
        "memories": {"recall": 1.25},
        "facts": {"recall": 1.25},
        "procedures": {"execute": 1.5},
        "experience": {"execute": 1.25},
        "episodes": {"execute": 1.25},
    }, "the words of the page say these factors"
