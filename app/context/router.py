"""What a query is about, by rules that can be read: no model, no state, the same answer each time.

A greeting at the start is passed over. Then, in this order:
1. It sets a reminder ("remind me to …", "don't forget to …"): execute.
2. It speaks of the past or of remembering ("last time", "remind me", "did we", "two days ago"): recall.
3. It asks to have something done, or how to do it ("deploy …", "please send …", "can you …", "how do I …"): execute.
4. It is any other question: recall, for what is known answers it.
5. It comes with a task: execute.
6. Otherwise: general.
"""

import re
import unicodedata

from app.context.schemas import Intent

MAX_READ = 2_000

_WHO = "(?:i|we|you|he|she|they|it|the|this|that|my|our|your|his|her|their)"
_GREETING = re.compile(r"^(?:(?:hi|hey|hello|dear \w+|good (?:morning|evening|afternoon)|@[\w.-]+)\b[\s,!.:]*)+")
_REMIND = re.compile(
    r"^(?:please |kindly )?(?:remind me (?:(?!what|how|where|when|which|who|why|of|about)\w+ ){0,4}to\b"
    r"|(?:don't|do not|never) forget to\b|remember to\b)"
)
_PAST = re.compile(
    r"\b(?:remember(?:ed|s)?|recall(?:ed|s)?|remind(?:ed|s)?|forg[eo]t(?:ten)?|previous(?:ly)?|earlier|yesterday|ago"
    r"|last (?:time|week|month|year|night|session|summer|winter|spring|autumn|fall)|history|in the past|back then"
    r"|(?<!'m )(?<!am )(?<!are )(?<!is )(?<!get )(?<!be )used to|we (?:discussed|decided|agreed|talked|said|spoke)"
    rf"|(?:i|you|he|she|they) (?:already |just |once )?(?:said|told|mentioned|asked|promised)|did {_WHO})\b"
    rf"|(?:^|[.!,] |\b(?:who|what|when|where|which|why|how|and|so|but) )(?:have|had|has|was|were) {_WHO}\b"
)
_VERBS = (
    "add|analy[sz]e|apply|approve|archive|arrange|assign|attach|backup|block|book|build|buy|calculate|call|cancel"
    "|change|check|clean|close|compare|configure|connect|convert|copy|create|debug|delete|deploy|disable|download"
    "|draft|email|enable|execute|export|extract|file|fill|find me|fix|generate|implement|import|install|invite|launch"
    "|log (?:in|out)|look up|make|merge|migrate|move|notify|open|order|pay|plan|post|prepare|publish|pull|push|reboot"
    "|refactor|refund|register|reject|release|remove|rename|renew|replace|reply|reschedule|reserve|reset|restart"
    "|restore|retry|revert|roll ?back|rotate|run|save|scale|schedule|search|send|set|share|ship|start|stop|submit"
    "|subscribe|summari[sz]e|switch|sync|test|transfer|translate|turn|unblock|undo|uninstall|update|upgrade|upload"
    "|verify|write"
)
_ASKING = (
    r"(?:please|kindly|(?:can|could|would|will) you|(?:can|could) we|let'?s|let us|help me(?: to)?|go ahead and|now"
    r"|then|ok(?:ay)?)"
)
_EXECUTE = re.compile(
    rf"^(?:{_ASKING}[ ,]+)*(?:to )?(?:{_VERBS})\b"
    rf"|^(?:{_ASKING}[ ,]+)*(?:(?:i|we) (?:need|want|would like)|(?:i|we)'d like|need) (?:you )?to (?:{_VERBS})\b"
    r"|^(?:and |so |but )?how (?:do|can|should|would|could|must) (?:i|we|you|one)\b|^how to\b"
    r"|\b(?:steps|procedure|instructions|guide|(?<!on the )(?<!on my )way) (?:to|for)\b"
)
_QUESTION = re.compile(
    r"^(?:and |so |but )?(?:who|whom|whose|what|when|where|which|why|how|is|are|am|do|does|did|was|were|has|have|had"
    r"|can|could|should|would|will|tell me|show me|list|any idea|anything|any news|i (?:need|want) to know)\b"
    r"|[?\uff1f\u061f]\s*$"
)


def route(query: str, *, has_task: bool = False) -> Intent:
    """At most its first 2,000 characters are read."""
    read = query[:MAX_READ].replace("\u037e", "?").replace("\u2019", "'")
    text = " ".join(unicodedata.normalize("NFKC", read).casefold().split())
    text = _GREETING.sub("", text) or text
    if _REMIND.search(text):
        return "execute"
    if _PAST.search(text):
        return "recall"
    if _EXECUTE.search(text):
        return "execute"
    if _QUESTION.search(text):
        return "recall"
    return "execute" if has_task else "general"
