"""Secrets and personal data in texts: keys of vendors, private keys, passwords in addresses, cards and IBANs.

    secrets_of("My key is sk-proj-Zk…, card 4242 4242 4242 4242.")
    → [Secret("openai_key", 10, 58), Secret("card", 65, 84)]

What is found has a form that hardly anything else has, or a sum that is right. A word such as "password" says nothing.
Each expression begins with a mark of its own, and its repeats are bounded and do not nest, so that a text of any kind
is read in a time that grows with its length.
"""

import re
import string
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple
from zlib import crc32


class Secret(NamedTuple):
    """A secret in a text: its kind, and the characters from `start` up to `end`."""

    kind: str
    start: int
    end: int


class Form(NamedTuple):
    """What one kind of secret looks like. `marks`: one of them stands in each. The group 1 of `pattern` is the secret,
    where it has one. `check`: what a match must be besides."""

    kind: str
    marks: tuple[str, ...]
    pattern: re.Pattern[str]
    check: Callable[[str], bool] | None = None


_IN_A_WORD = frozenset("-_" + string.ascii_letters + string.digits)
_BREAKS = ("\\n", "\\r", "\\t")
_BASE62 = string.digits + string.ascii_uppercase + string.ascii_lowercase


def _varied(text: str) -> bool:
    """Returns False for a placeholder such as `AKIAXXXXXXXXXXXXXXXX`."""
    return len(set(text)) >= 8


def _with_digit(text: str) -> bool:
    return _varied(text) and any(map(str.isdigit, text[6:]))


def _crc_fits(token: str) -> bool:
    """Returns whether the last six characters of `ghp_…` are the CRC32 of the 30 before them, in base 62."""
    if len(token) != 40:
        return True
    number, digits = crc32(token[4:34].encode()), ""
    for _ in range(6):
        number, digit = divmod(number, 62)
        digits = _BASE62[digit] + digits
    return digits == token[34:]


def _mixed(text: str) -> bool:
    """Returns whether a text of base64 has letters of both cases and a digit, as a hash in hex or a path has not."""
    return _varied(text) and all(re.search(group, text) for group in ("[a-z]", "[A-Z]", "[0-9]"))


def _no_placeholder(password: str) -> bool:
    return password[0] not in "$<{*%[" and len(set(password)) > 1


def _key(kind: str, marks: str, pattern: str, check: Callable[[str], bool] = _varied) -> Form:
    """Returns the form of a key. Its expression looks behind nothing, so that Python skips to its first letters."""
    return Form(kind, tuple(marks.split()), re.compile(pattern, re.ASCII), check)


def _begins(text: str, start: int) -> bool:
    """Returns whether no word goes on at a place. An escaped line break of a JSON text is no part of one."""
    return start == 0 or text[start - 1] not in _IN_A_WORD or text[start - 2 : start] in _BREAKS


FORMS = (
    # Models. The pages of these vendors show the forms; lengths as gitleaks has them (config/gitleaks.toml), looser
    # where vendors have changed them. platform.openai.com/api-keys, docs.anthropic.com, ai.google.dev, huggingface.co.
    _key("anthropic_key", "sk-ant-", r"sk-ant-[a-z]{3,8}\d{2}-[\w-]{20,200}"),
    _key("openai_key", "sk-", r"sk-(?:(?:proj|svcacct|admin|or-v1)-[\w-]{20,220}|[A-Za-z0-9]{32,64})", _with_digit),
    _key("google_key", "AIza", r"AIza[\w-]{35}"),
    _key("google_oauth", "GOCSPX- ya29. 1//0", r"(?:GOCSPX-[\w-]{20,40}|ya29\.[\w-]{20,300}|1//0[\w-]{30,120})"),
    _key("google_key", ":APA91", r"AAAA[\w-]{7}:APA91[\w-]{130,180}"),
    _key("huggingface_token", "hf_ api_org_", r"(?:hf|api_org)_[A-Za-z0-9]{34,40}"),
    _key("model_key", "gsk_ xai- pplx- nvapi- r8_", r"(?:gsk_|xai-|pplx-|nvapi-|r8_)[\w-]{32,100}", _with_digit),
    _key("model_key", "lsv2_ pcsk_ tvly-", r"(?:lsv2_(?:pt|sk)_|pcsk_|tvly-(?:dev-|prod-)?)[\w-]{20,100}", _with_digit),
    # Clouds. docs.aws.amazon.com/IAM/latest/UserGuide/reference_identifiers.html; learn.microsoft.com (azure storage:
    # 512 bits in base64; Entra: `Q~`); docs.digitalocean.com; docs.databricks.com.
    _key("aws_key_id", "AKIA ASIA ABIA ACCA", r"A(?:KIA|SIA|BIA|CCA)[A-Z2-7]{16}(?!\w)"),
    _key("aws_bedrock_key", "ABSK", r"ABSK[A-Za-z0-9+/]{100,270}={0,2}"),
    Form("aws_secret_key", ("ecret", "ECRET", "aws", "AWS", "AKIA"),
         re.compile(r"(?<![A-Za-z0-9/+])([A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])"), _mixed),
    _key("azure_key", "AccountKey= SharedAccessKey=",
        r"(?:DefaultEndpointsProtocol=https?;AccountName=\w{1,64};)?"
        r"(?:Account|SharedAccess)Key=[A-Za-z0-9+/]{42,86}={1,2}(?:;EndpointSuffix=[\w.-]{1,100})?"),
    _key("azure_secret", "Q~", r"[\w.~]{3}\dQ~[\w.~-]{31,34}"),
    _key("digitalocean_token", "_v1_", r"do[opr]_v1_[a-f0-9]{64}"),
    _key("databricks_token", "dapi", r"dapi[a-f0-9]{32}"),
    _key("cloud_token", "HRKU-AA fo1_ fm1 fm2_", r"(?:HRKU-AA|fo1_|fm1[ar]_|fm2_)[\w+/-]{43,400}"),
    _key("cloud_token", "LTAI AKID", r"(?:LTAI[A-Za-z0-9]{20}|AKID[A-Za-z0-9]{32})(?!\w)", _with_digit),
    _key("cloud_token", "nfp_ sbp_ sb_secret_", r"(?:nfp_|sbp_|sb_secret_)[\w-]{30,60}", _with_digit),
    _key("cloud_token", "pscale_ pul- hvs. hvb.", r"(?:pscale_(?:tkn|pw)_|pul-|hv[sb]\.)[\w.-]{24,300}", _with_digit),
    # Code and packages. docs.github.com "token formats" and github.blog 2021-04-05 (CRC32); docs.gitlab.com "token
    # prefixes"; the help pages of npm, PyPI (a macaroon) and RubyGems; docs.docker.com; postman.com.
    _key("github_token", "ghp_ gho_ ghu_ ghs_ ghr_", r"gh[opusr]_[A-Za-z0-9]{36}(?!\w)", _crc_fits),
    _key("github_token", "github_pat_ ghs_", r"(?:github_pat_\w{82}|ghs_\d{1,12}_eyJ[\w.-]{50,1500})"),
    _key("gitlab_token", "gl", r"gl(?:pat|dt|rt|rtr|cbt|ptt|ft|imt|agent|oas|soat|ffct)-[\w.-]{20,300}"),
    _key("npm_token", "npm_", r"npm_[A-Za-z0-9]{36}(?!\w)", _crc_fits),
    _key("pypi_token", "pypi-AgE", r"pypi-AgE[\w-]{50,400}"),
    _key("package_token", "rubygems_ dckr_", r"(?:rubygems_[a-f0-9]{48}|dckr_[po]at_[\w-]{27,40})"),
    _key("package_token", "cio", r"cio[A-Za-z0-9]{32}(?!\w)", _with_digit),
    _key("postman_key", "PMAK-", r"PMAK-[a-f0-9]{24}-[a-f0-9]{34}"),
    # Chat and mail. api.slack.com/authentication/token-types; core.telegram.org/bots/api; discord.com/developers;
    # docs.sendgrid.com; documentation.mailgun.com; twilio.com/docs/iam/api-keys; mailchimp.com/developer.
    _key("slack_token", "xox xapp-", r"(?:xox[abeoprs](?:\.xox[bp])?|xapp)-[\w-]{10,250}", _with_digit),
    _key("webhook", "hooks.slack.com", r"(?:https://)?hooks\.slack\.com/(?:services|workflows|triggers)/[\w/+]{20,80}"),
    _key("webhook", "/api/webhooks/", r"(?:https://)?discord(?:app)?\.com/api/webhooks/\d{15,22}/[\w-]{30,100}"),
    _key("discord_token", ".", r"[MNO][A-Za-z0-9_-]{23,27}\.[\w-]{6}\.[\w-]{27,38}", _with_digit),
    _key("telegram_token", ":AA", r"(?:bot)?(\d{8,10}:AA[\w-]{33})(?![\w-])"),
    _key("sendgrid_key", "SG.", r"SG\.[\w-]{16,32}\.[\w-]{32,64}"),
    _key("mailgun_key", "key-", r"key-[a-f0-9]{32}(?!\w)"),
    _key("mailchimp_key", "-us", r"[a-f0-9]{32}-us\d{1,2}(?!\w)"),
    _key("twilio_key", "SK", r"SK[a-f0-9]{32}(?!\w)"),
    # Shops and offices. docs.stripe.com/keys; shopify.dev; developer.squareup.com; developers.notion.com; linear.app;
    # figma.com; airtable.com/developers; support.atlassian.com; docs.newrelic.com; grafana.com; docs.sentry.io.
    _key("stripe_key", "k_live_ k_test_ whsec_", r"(?:[sr]k_(?:live|test)_[A-Za-z0-9]{10,250}|whsec_[\w+/]{32,64})"),
    _key("shopify_token", "shp", r"shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}"),
    _key("square_token", "sq0 EAAA", r"(?:sq0(?:atp|csp)-[\w-]{22,60}|EAAA[\w-]{60})"),
    _key("paypal_token", "access_token$", r"access_token\$(?:production|sandbox)\$[a-z0-9]{16}\$[a-f0-9]{32}"),
    _key("mapbox_token", "sk.eyJ", r"sk\.eyJ[\w-]{20,300}\.[\w-]{20,60}"),
    _key("office_token", "ntn_ secret_", r"(?:ntn_|secret_)[A-Za-z0-9]{43,50}(?!\w)", _with_digit),
    _key("office_token", "lin_api_ figd_", r"(?:lin_api_[A-Za-z0-9]{40}|figd_[\w-]{36,60})"),
    _key("office_token", "pat", r"pat[A-Za-z0-9]{14}\.[a-f0-9]{64}"),
    _key("office_token", "ATATT3 ATCTT3 ATBB", r"(?:AT[AC]TT3[\w=-]{20,300}|ATBB[A-Za-z0-9]{32})"),
    _key("monitor_token", "NRAK- glsa_", r"(?:NRAK-[A-Z0-9]{27}|glsa_[A-Za-z0-9]{32}_[a-fA-F0-9]{8})"),
    _key("monitor_token", "glc_ sntrys_ sntryu_", r"(?:glc|sntry[su])_[\w+/=]{40,400}"),
    _key("vault_key", "ops_eyJ A3-", r"(?:ops_eyJ[\w+/=]{100,1000}|A3-[A-Z0-9-]{30,40})", _with_digit),
    _key("age_key", "AGE-SECRET-KEY-", r"AGE-SECRET-KEY-1[A-Z0-9]{58}"),
    _key("recalld_key", "rk_", r"rk_[0-9a-f]{16}_[\w-]{43}"),
    # What has the same form everywhere. RFC 7519 (three parts, the first two JSON objects in base64url), RFC 3986.
    _key("jwt", "eyJ", r"(?:(?<![\w-])|(?<=\\[nrt]))eyJ[\w-]{8,2000}\.eyJ[\w-]{8,6000}\.[\w-]{8,1500}"),
    Form("auth_header", ("uthorization",), re.compile(
         r"[Aa]uthorization[\"']{0,2}\s{0,2}[:=]\s{0,2}[\"']?(?:Basic|Bearer|[Tt]oken) ([\w.~+/=-]{16,500})", re.ASCII),
         _with_digit),
    Form("url_password", ("://",),
         re.compile(r"""(?<=[a-zA-Z0-9])://[^\s/:@"'<>]{0,128}:([^\s/"'<>]{1,256})@"""), _no_placeholder),
)  # fmt: skip
_BY_MARK = tuple((mark, form) for form in FORMS for mark in form.marks)
_RUN = re.compile(r"[\w./+=:;~-]{15}", re.ASCII)
"""Stands in each of them but a password in an address, the shortest a token of Slack. Few texts of people have one."""
_PRIVATE_KEY = re.compile(r"-----BEGIN (?:[A-Z0-9]{2,12} ){0,3}PRIVATE KEY(?: BLOCK)?-----|PuTTY-User-Key-File-\d")
"""RFC 7468 and its relatives."""
_KEY_BODY = re.compile(r"(?:[A-Za-z0-9+/=:,.() -]|\s|\\[nr]){0,20000}")
_KEY_CHARS = 20_000
_DIGITS = re.compile(r"\d\d")
"""Stands in each card and each IBAN."""
_CARD = re.compile(
    r"(?:(?<![\w.])|(?<=\\[nrt]))(?<!\d{4}[ -])"
    r"(?:\d{4}([ \u00a0\u202f.-]?)\d{4}\1\d{4}\1\d{2,7}(?!\1\d(?!\d)|\1\d{4})|"
    r"3\d{3}([ \u00a0\u202f.-]?)\d{6}\2\d{4,5})(?!\w)",
    re.ASCII,
)
_ISSUERS = (
    # First digits, and how many digits there are: ISO/IEC 7812; visa.com, mastercard.com (2-series), developer pages of
    # American Express, Discover (with Diners and JCB), UnionPay, Mir, Maestro, RuPay, Troy.
    ("4", "4", (16, 19)), ("51", "55", (16,)), ("2221", "2720", (16,)), ("34", "34", (15,)), ("37", "37", (15,)),
    ("6011", "6011", (16, 19)), ("644", "659", (16, 19)), ("300", "305", (14, 16)), ("36", "36", (14, 16, 19)),
    ("38", "39", (14, 16)), ("3528", "3589", (16, 19)), ("62", "62", (16, 17, 18, 19)), ("81", "82", (16,)),
    ("2200", "2204", (16, 17, 18, 19)), ("5018", "5038", (16, 19)),
    ("6304", "6304", (16, 19)), ("6759", "6763", (16, 19)), ("508", "508", (16,)), ("9792", "9792", (16,)),
)  # fmt: skip
_IBAN = re.compile(r"(?:(?<!\w)|(?<=\\[nrt]))(?=([A-Za-z]{2}\d{2}(?:[ \u00a0\u202f-]?[A-Za-z0-9]){11,30}))", re.ASCII)
"""Looks ahead, since one may begin within another: `AB12 IBAN DE89 3704 …`."""
_IBAN_LENGTHS = {
    # SWIFT, IBAN registry (ISO 13616).
    pair[:2]: int(pair[2:])
    for pair in (
        "AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BI27 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DJ27 DK18 DO28 EE20 EG29 "
        "ES24 FI18 FK18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HN28 HR21 HU28 IE22 IL23 IQ23 IS26 IT27 JO30 KW30 KZ20 "
        "LB28 LC32 LI21 LT20 LU20 LV21 LY25 MC27 MD24 ME22 MK19 MN20 MR27 MT31 MU30 NI28 NL18 NO15 OM23 PK24 PL28 PS29 "
        "PT25 QA29 RO24 RS22 RU33 SA24 SC31 SD18 SE24 SI19 SK24 SM27 SO23 ST25 SV28 TL23 TN24 TR26 UA29 VA22 VG24 XK20 "
        "YE30"
    ).split()
}
PRIVATE = "private"
_TAG = re.compile(r"<(/?)private>", re.IGNORECASE)


def secrets_of(text: str, own: Sequence[tuple[str, re.Pattern[str]]] = ()) -> list[Secret]:
    """Returns the secrets in a text, in order. Those that overlap are one, of the kind of the longer. `own`: kinds and
    patterns of the operator."""
    found = [*_private(text)]
    marked = "://" in text or _RUN.search(text)
    for form in dict.fromkeys([form for mark, form in _BY_MARK if mark in text] if marked else ()):
        group = form.pattern.groups  # 0 or 1
        found += [
            Secret(form.kind, *match.span(group))
            for match in form.pattern.finditer(text)
            if (group or _begins(text, match.start())) and (form.check is None or form.check(match[group]))
        ]
    if "PRIVATE KEY" in text or "PuTTY-" in text:
        found += _private_keys(text)
    if _DIGITS.search(text):
        found += filter(None, map(_iban, _IBAN.finditer(text)))
        found += [Secret("card", *match.span()) for match in _CARD.finditer(text) if _is_card(match[0])]
    found += [Secret(kind, *match.span()) for kind, pattern in own for match in pattern.finditer(text) if match[0]]
    kept: list[Secret] = []
    for span in sorted(found, key=lambda span: (span.start, -span.end)):
        if kept and span.start < kept[-1].end:
            longer = max(kept[-1], span, key=lambda span: span.end - span.start)
            kept[-1] = Secret(longer.kind, kept[-1].start, max(kept[-1].end, span.end))
        else:
            kept.append(span)
    return kept


def redacted(text: str, found: Sequence[Secret]) -> str:
    """Returns the text with `[secret: card]` in the place of each secret, and nothing in that of a private block."""
    parts, end = list[str](), 0
    for secret in found:
        parts += (text[end : secret.start], "" if secret.kind == PRIVATE else f"[secret: {secret.kind}]")
        end = secret.end
    return "".join((*parts, text[end:]))


def _private(text: str) -> Iterator[Secret]:
    """Yields the blocks `<private>…</private>`, each with its tags. One in another belongs to it."""
    if "rivate>" not in text and "RIVATE>" not in text:
        return
    depth, start = 0, 0
    for tag in _TAG.finditer(text):
        if not tag[1]:
            start = start if depth else tag.start()
            depth += 1
        elif depth:
            depth -= 1
            if not depth:
                yield Secret(PRIVATE, start, tag.end())


def _private_keys(text: str) -> Iterator[Secret]:
    """Yields the private keys, up to their last line or as far as they go."""
    done = 0
    for begin in _PRIVATE_KEY.finditer(text):
        if begin.start() < done:
            continue
        last = text.find("-----END ", begin.end(), begin.end() + _KEY_CHARS)
        closing = text.find("-----", last + 9, last + 80) if last >= 0 else -1
        body = _KEY_BODY.match(text, begin.end()) if closing < 0 else None  # read only where no last line says the end
        done = body.end() if body else closing + 5
        yield Secret("private_key", begin.start(), done)


def _is_card(text: str) -> bool:
    """Returns whether digits are of an issuer's range and length, and their sum is right (Luhn; ISO/IEC 7812-1)."""
    digits = [*map(int, filter(str.isdigit, text))]
    number = "".join(map(str, digits))
    if not any(len(digits) in lengths and low <= number[: len(low)] <= high for low, high, lengths in _ISSUERS):
        return False
    doubled = (2 * digit - 9 * (digit > 4) for digit in digits[-2::-2])
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0 and len(set(digits)) > 1


def _iban(match: re.Match[str]) -> Secret | None:
    """Returns the IBAN that a match begins with: as long as its country has them, with the right sum (ISO 7064)."""
    text, length = match[1], _IBAN_LENGTHS.get(match[1][:2].upper())
    places = [at for at, char in enumerate(text) if char.isalnum()]
    if length is None or len(places) < length or text[places[length - 1] + 1 :][:1].isalnum():
        return None
    written = "".join(text[at] for at in places[:length]).upper()
    number = "".join(str(int(char, 36)) for char in written[4:] + written[:4])
    end = match.start() + places[length - 1] + 1
    return Secret("iban", match.start(), end) if int(number) % 97 == 1 else None
