"""What a query is taken for: the stated rules, and queries of many kinds as a person would label them.

Only those that the rules get right: rules that can be read get many others wrong.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.context.router import route
from app.context.schemas import Intent

GENERAL = """
Hello there!
Good morning
Thanks a lot, that helps.
lol
😀
...
42
yes
No, the other one
I love climbing in the Dolomites.
My daughter starts school on Monday.
The meeting is at 5 pm in room 12.
My name is Ana and I live in Porto.
I'm feeling a bit tired today
Let's talk about space
Sounds good, let's go
Then he laughed.
The deploy failed again.
I have never been to Japan
Nice weather, isn't this lovely
Great work!
MY PHONE NUMBER IS 555-0199
Merci beaucoup !
Ich wohne jetzt in Hamburg.
こんにちは
Me gusta el café sin azúcar
Я люблю чай
Bonjour, je m'appelle Léa
Eu moro em São Paulo
I work as a nurse at the city hospital
Just so you know, I am vegetarian
That is fine with me
"""
RECALL = """
What did I tell you about my sister?
Where did I leave my keys
Do you remember the name of that restaurant
Remind me what Anna's email address is
Can you remind me which plan we picked?
last time we spoke about the contract
As I said earlier, the budget is fixed.
What happened yesterday?
WHAT WAS THE WIFI PASSWORD???
Who is my manager
Whose turn is it to cook
When is Ben's birthday?
Which airline do I prefer?
Am I allergic to anything?
Is my subscription still active?
Has the invoice been paid?
Why did the build break?
How did we fix the outage in March?
Could you tell me where the spare key is?
Tell me about my last project
List my open tickets
Show me the notes on Alpha
My favourite colour?
history of our pricing decisions
you mentioned a book two weeks ago
Previously on this topic
We agreed on Tuesday.
have we met before
Did she ever answer
And where does he work?
So what is her dog called
Summarize yesterday's standup
Forgot my own door code...
What's my sister’s name?
How old is my son?
how many kids does Tom have
Should I expect snow in Oslo?
¿Dónde vive mi hermana?
¿Qué coche tengo?
Hvor gammel er sønnen min?
내 생일이 언제야?
Wo wohnt Anna?
我姐姐住在哪里？
أين تعيش أختي؟
Où habite ma sœur ?
Как зовут мою собаку?
昨日何を話しましたか？
Was habe ich dir über Max erzählt
"""
EXECUTE = """
Deploy the API to staging
DEPLOY THE API TO STAGING!!!
restart.
Please send the report to Carla
Could you please check the logs?
Can you book a table for two tonight?
Please, could you turn off the lights
ok, then run the tests
Let’s merge it
Reschedule my dentist appointment to Friday
Translate this into French: good night
Make it shorter
Write me a poem about rain
Draft an email to Ben
Create a ticket for that
Add milk to the shopping list
Fix the login bug
Assign it to Carla
Help me to configure the printer
go ahead and publish
I want you to summarise this thread
I need to cancel my order
I would like to renew my pass
How do I reset my password?
How can we speed up the build
how to bake bread
And how would I export my data?
What are the steps to release a version?
What is the best way to migrate the database?
Give me instructions for the coffee machine
ROLL BACK the last release!
rollback
Kindly refund order 17
would you move the call to noon?
ｄｅｐｌｏｙ the service
Could you help me write a letter?
Turn it off, please
"""
WITH_TASK: dict[Intent, str] = {
    "execute": """
continue
the second one
ok
yes, that one
Next step
it says permission denied
Deploy it
weiter
How do I do this?
""",
    "recall": """
where were we
Who wrote it?
What did we decide?
¿Quién lo pidió?
""",
}


def queries(block: str) -> list[str]:
    return block.strip("\n").split("\n")


LABELLED: list[tuple[str, Intent]] = [
    *((query, "general") for query in queries(GENERAL)),
    *((query, "recall") for query in queries(RECALL)),
    *((query, "execute") for query in queries(EXECUTE)),
]
WITH_A_TASK = [(query, intent) for intent, block in WITH_TASK.items() for query in queries(block)]


def test_the_queries_are_many() -> None:
    assert len({query for query, _ in LABELLED}) == len(LABELLED) >= 80
    assert min(len(queries(block)) for block in (GENERAL, RECALL, EXECUTE)) >= 20
    assert sum(not query.isascii() for query, _ in LABELLED) >= 15


@pytest.mark.parametrize(("query", "intent"), LABELLED)
def test_a_query_is_what_a_person_takes_it_for(query: str, intent: Intent) -> None:
    assert route(query) == intent


@pytest.mark.parametrize(("query", "intent"), WITH_A_TASK)
def test_a_query_that_comes_with_a_task(query: str, intent: Intent) -> None:
    assert route(query, has_task=True) == intent


# --- The rules, in their order ----------------------------------------------------------------------------------------

RULES: list[tuple[str, Intent, Intent]] = [
    # query, without a task, with one
    ("Remind me how to deploy", "recall", "recall"),  # 1 before 2
    ("Did we deploy?", "recall", "recall"),  # 1 before 3
    ("Deploy it?", "execute", "execute"),  # 2 before 3
    ("How do I deploy?", "execute", "execute"),
    ("Why does it rain?", "recall", "recall"),  # 3 before 4
    ("It rains", "general", "execute"),  # 4 before 5
]


@pytest.mark.parametrize(("query", "alone", "with_task"), RULES)
def test_the_first_rule_that_holds_decides(query: str, alone: Intent, with_task: Intent) -> None:
    assert (route(query), route(query, has_task=True)) == (alone, with_task)


@pytest.mark.parametrize(("query", "intent"), LABELLED)
def test_a_task_changes_only_what_is_nothing_else(query: str, intent: Intent) -> None:
    assert route(query, has_task=True) == ("execute" if intent == "general" else intent)


@pytest.mark.parametrize(("query", "intent"), LABELLED)
def test_neither_case_nor_white_space_nor_wide_letters_matter(query: str, intent: Intent) -> None:
    wide = "".join(chr(ord(one) + 0xFEE0) if "!" <= one <= "~" else one for one in query)
    for same in (query.upper(), query.lower(), f"  {query}\n", query.replace(" ", "\u00a0\t "), wide):
        assert route(same) == intent


@pytest.mark.parametrize("mark", ["?", "\uff1f", "\u061f", " ? ", "\u037e"])
def test_a_question_mark_of_any_script_asks(mark: str) -> None:
    assert route(f"Ada{mark}") == "recall"


def test_a_word_inside_another_is_not_that_word() -> None:
    for query in ("Agony", "The dragon breathes fire", "Whoever", "Addition is easy", "Sendai is a city", "Isabel"):
        assert route(query) == "general"


@settings(deadline=None, max_examples=80)
@given(st.text(max_size=60), st.booleans())
def test_any_text_has_one_intent_and_always_the_same(query: str, has_task: bool) -> None:
    intent = route(query, has_task=has_task)
    assert intent in ("general", "recall", "execute")
    assert route(query, has_task=has_task) == intent
    if has_task:
        assert intent != "general"


@pytest.mark.parametrize("word", ["have ", "please ", "i want to ", "? ", "how do ", " " * 3, "then, "])
def test_a_long_query_takes_no_longer_than_its_length(word: str) -> None:
    assert route(word * 10_000 + "x") in ("general", "recall", "execute")


@pytest.mark.parametrize("query", ["I'd like to cancel my subscription", "I’d like you to pay my bill"])
def test_a_wish_in_short_form(query: str) -> None:
    assert route(query) == "execute"
