"""What a query is about, by rules that can be read: no model, no state, the same answer each time.

In this order:
1. It speaks of the past or of remembering ("last time", "remind me", "did we", "two days ago"): recall.
2. It asks to have something done, or how to do it ("deploy …", "please send …", "can you …", "how do I …"): execute.
3. It is any other question: recall, for what is known answers it.
4. It comes with a task: execute.
5. Otherwise: general.
"""

import re
import unicodedata

from app.context.schemas import Intent

_PAST = re.compile(
    r"\b(?:remember(?:ed|s)?|recall(?:ed|s)?|remind(?:ed|s)?|forg[eo]t(?:ten)?|last (?:time|week|month|year|night"
    r"|session|summer|winter|spring|autumn|fall)|previous(?:ly)?|earlier|yesterday|ago|history|in the past|back then"
    r"|used to|we (?:discussed|decided|agreed|talked|said|spoke)"
    r"|(?:i|you|he|she|they) (?:said|told|mentioned|asked|promised)"
    r"|(?:did|have|had|has|was|were) (?:i|we|you|he|she|they|it|the|this|that|my|our|your|his|her|their))\b"
)
_VERBS = (
    "add|apply|arrange|assign|backup|book|build|buy|calculate|call|cancel|change|check|clean|close|configure|connect"
    "|convert|copy|create|debug|delete|deploy|disable|download|draft|email|enable|execute|export|file|fill|fix"
    "|generate|implement|import|install|launch|make|merge|migrate|move|open|order|pay|plan|post|prepare|publish|pull"
    "|push|reboot|refactor|refund|register|release|remove|rename|renew|replace|reply|reschedule|reserve|reset|restart"
    "|restore|retry|revert|roll ?back|rotate|run|save|schedule|scale|send|set|ship|start|stop|submit|subscribe"
    "|summari[sz]e|switch|sync|test|translate|transfer|turn|uninstall|update|upgrade|upload|write"
)
_ASKING = (
    r"(?:please|kindly|can you|could you|would you|will you|let'?s|let us|help me(?: to)?|go ahead and|now|then"
    r"|ok(?:ay)?)"
)
_EXECUTE = re.compile(
    rf"^(?:{_ASKING}[ ,]+)*(?:to )?(?:{_VERBS})\b"
    rf"|^(?:{_ASKING}[ ,]+)*i (?:need|want|would like|'?d like) (?:you )?to (?:{_VERBS})\b"
    r"|^(?:and |so |but )?how (?:do|can|should|would|could|must) (?:i|we|you|one)\b|^how to\b"
    r"|\b(?:steps|procedure|instructions|guide|way) (?:to|for)\b"
)
_QUESTION = re.compile(
    r"^(?:and |so |but )?(?:who|whom|whose|what|when|where|which|why|how|is|are|am|do|does|did|was|were|has|have|had"
    r"|can|could|should|would|will|tell me|show me|list)\b|[?\uff1f\u061f\u037e]\s*$"
)


def route(query: str, *, has_task: bool = False) -> Intent:
    text = " ".join(unicodedata.normalize("NFKC", query).casefold().replace("\u2019", "'").split())
    if _PAST.search(text):
        return "recall"
    if _EXECUTE.search(text):
        return "execute"
    if _QUESTION.search(text):
        return "recall"
    return "execute" if has_task else "general"
