"""Small talk: turns of a conversation in which nothing is said that is worth keeping."""

import random
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from benchmarks.learned.sets import Conversation

SEED = 25
TURNS = 500
EACH = 20
"""The turns of one session."""
ENOUGH = 10
"""The highest number of derived records that 500 turns may leave."""

OPENERS = ("", "haha, ", "well, ", "hm, ", "oh, ", "ok, ", "lol ", "yeah, ")
SAID = {
    "user": (
        "good morning", "hi", "hello there", "hey", "thanks", "thank you so much", "ok", "okay then", "sure",
        "nothing much", "not much", "all good", "cool", "nice", "great", "that's funny", "you're welcome", "see you",
        "bye", "good night", "how are you?", "what's up?", "really?", "no problem", "never mind", "got it",
        "makes sense", "sounds good", "👍", "😂", "same here", "guten Morgen", "danke", "alles klar", "bonjour",
        "merci", "ça va", "hola", "gracias", "vale",
    ),
    "assistant": (
        "Good morning! How can I help?", "You're welcome!", "Great, what do you need?", "Haha, nice.", "See you!",
        "I'm fine, thanks!", "Anything else?", "Sure!", "Glad to hear that.", "Guten Morgen!", "De rien !",
    ),
}  # fmt: skip
CHATTER = (
    "ugh, mondays",
    "it's pouring again",
    "so sleepy today",
    "can't be bothered right now",
    "just killing time",
    "what a day",
    "you're funny",
    "tell me another one",
    "not in the mood",
    "still waiting for the bus",
    "boah, bin ich müde",
    "nur so zum Spaß",
    "erzähl mir was",
    "so ein Wetter heute",
    "mir ist langweilig",
    "il fait trop chaud",
    "je suis crevée",
    "quel temps de chien",
    "raconte-moi une blague",
    "j'ai la flemme",
    "qué sueño tengo",
    "hace un frío hoy",
    "me aburro",
    "cuéntame un chiste",
    "che noia",
    "oggi piove di nuovo",
    "今天好累啊",
    "外面在下雨",
    "好无聊",
    "哈哈真有意思",
    "今日は寒いですね",
    "眠いなあ",
    "暇だなあ",
)
"""Moods, weather and wishes for a joke. The rules were made with those at even places; `--chatter` reads the others."""
ENDS = ("", "", ".", "!", " :)", " 🙂")


def small_talk(turns: int = TURNS, seed: int = SEED, said_by_user: Sequence[str] = SAID["user"]) -> list[Conversation]:
    """Returns sessions of one user with so many turns in all, of which nothing must be learned.

    Equal seeds give equal texts. `said_by_user` is what the user's turns are made of.
    """
    dice = random.Random(seed)
    phrases = {**SAID, "user": said_by_user}
    said = [_turn(dice, ("user", "assistant")[turn % 2], phrases) for turn in range(turns)]
    started = datetime(2026, 3, 2, 9, tzinfo=UTC)
    return [
        Conversation(
            id=f"small-talk-{at // EACH}",
            language="en",
            user_id="small-talker",
            started_at=started + timedelta(hours=at // EACH),
            messages=tuple(said[at : at + EACH]),
            must=(),
            may=(),
            must_not=(),
            prompt_checks=(),
        )
        for at in range(0, turns, EACH)
    ]


def _turn(dice: random.Random, role: str, phrases: Mapping[str, Sequence[str]]) -> dict[str, str]:
    text = dice.choice(phrases[role])
    if role == "user":
        text = f"{dice.choice(OPENERS)}{text}{'' if text.endswith('?') else dice.choice(ENDS)}"
    return {"role": role, "content": text}
