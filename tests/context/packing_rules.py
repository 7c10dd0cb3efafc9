"""Cases for the packer, and every rule that it must keep, stated once more."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from random import Random

from app.context.packing import BEST_KEPT, LONG_ITEM, BoundedSection, Packer, Packing
from app.context.source import Candidate, Heading

FRAME = 5
TITLE = 2
HEADING = 3
MIN_SCORE = 0.1
ALWAYS = Fraction(6, 10)


def price(item: Candidate) -> int:
    """The price of a test's item is the length of its text."""
    return len(item.text)


def heading_price(item: Candidate) -> int:
    return 0 if item.heading is None else HEADING


@dataclass(frozen=True)
class Case:
    sections: Sequence[BoundedSection]
    budget: int
    frame: int = FRAME
    min_score: float = MIN_SCORE

    def packed(self, most_tokens: int | None = None) -> Packing:
        return Packer(self.sections, self.budget, self.frame, self.min_score, most_tokens).pack()

    def named(self) -> Mapping[str, BoundedSection]:
        return {one.name: one for one in self.sections}


# --- Making cases -----------------------------------------------------------------------------------------------------


def item(name: str, size: int, *same: str, score: float | None = None, heading: str | None = None) -> Candidate:
    under = None if heading is None else Heading(heading, "2026-05-08")
    return Candidate(name, "fact", "x" * size, score, keys=frozenset(same), heading=under)


def section(name: str, *items: Candidate, **fields: object) -> BoundedSection:
    """Of items that compete, unless `fields` say otherwise."""
    made = BoundedSection(name, items, price, heading_price, title_tokens=TITLE, limit=99)
    return replace(made, **fields)  # type: ignore[arg-type]


def sized(name: str, *sizes: int, score: float | None = None) -> list[Candidate]:
    return [item(f"{name}{at}", size, score=score) for at, size in enumerate(sizes)]


def fixed(name: str, *sizes: int, **fields: object) -> BoundedSection:
    return section(name, *sized(name, *sizes), fixed=True, **fields)


def a_section(random: Random, name: str, keys: str, *, stands: bool) -> BoundedSection:
    """At random. `stands`: it is always there."""
    items = [
        _an_item(random, f"{name}{at}", keys, None if stands else random.choice((0.0, 0.05, random.random())))
        for at in range(random.randint(0, 8))
    ]
    if not stands:
        items.sort(key=lambda one: -(one.score or 0.0))
        items = [either for one in items for either in (one, _a_partner(random, one, items)) if either is not None]
    return BoundedSection(
        name,
        items,
        price,
        heading_price,
        title_tokens=random.randint(0, 4),
        limit=random.choice((99, 99, random.randint(0, 8))),
        max_tokens=random.choice((None, None, random.randint(0, 60))),
        fixed=stands,
        framed=random.random() < 0.7,
        boost=random.choice((1.0, 1.0, 1.5)),
    )


def _an_item(random: Random, name: str, keys: str, score: float | None) -> Candidate:
    same = random.sample(keys, min(len(keys), random.choice((0, 0, 1, 1, 2))))
    made = item(name, random.randint(1, 30), *same, score=score, heading=random.choice((None, None, "p", "q")))
    return replace(made, factor=random.choice((1.0, 1.0, 0.5, 0.1)))


def _a_partner(random: Random, one: Candidate, items: Sequence[Candidate]) -> Candidate | None:
    """Another hit, a turn that nobody found, or none."""
    chance, score = random.random(), (one.score or 0.0) / 2
    if chance < 0.2:
        return replace(random.choice(items), score=score)
    return item(f"{one.id}+", random.randint(1, 30), score=score) if chance < 0.4 else None


def a_case(random: Random, *, keys: str = "xyz", shared: bool = True) -> Case:
    """`shared`: items that compete may say the same as those that are always there."""
    standing, competing = "abc"[: random.randint(0, 3)], "mno"[: random.randint(0, 3)]
    sections = [a_section(random, name, keys, stands=True) for name in standing]
    sections += [a_section(random, name, keys if shared else keys.upper(), stands=False) for name in competing]
    return Case(sections, random.randint(1, 250), random.randint(0, 8))


# --- The rules, stated once more --------------------------------------------------------------------------------------


def broken(case: Case, packed: Packing) -> list[str]:
    """Every rule that the result breaks."""
    checks = (_once, _sums, _walls, _always, _no_repeats, _min_score, _best_first, _reasons, _misfits)
    return sorted({rule for check in checks for rule in check(case, packed)})


def chosen_ids(packed: Packing) -> dict[str, list[str]]:
    return {name: [one.id for one in items] for name, items in packed.chosen.items()}


def size_of(section: BoundedSection, items: Sequence[Candidate]) -> int:
    """Tokens of a section: its title once, each heading once, each line."""
    headings = {one.heading.key for one in items if one.heading is not None}
    return (section.title_tokens if items else 0) + HEADING * len(headings) + sum(map(price, items))


def total(case: Case, packed: Packing) -> int:
    named = case.named()
    framed = any(named[name].framed for name in packed.chosen)
    return (case.frame if framed else 0) + sum(size_of(named[name], items) for name, items in packed.chosen.items())


def _known(section: BoundedSection) -> dict[str, Candidate]:
    return {one.id: one for one in section.items}


def _once(case: Case, packed: Packing) -> Iterator[str]:
    taken = Counter(one for ids in chosen_ids(packed).values() for one in ids)
    dropped = Counter(one.id for one, _ in packed.dropped)
    given = {one for section in case.sections for one in _known(section)}
    if max((taken + dropped).values(), default=0) > 1 or not given <= (taken + dropped).keys():
        yield "each is packed or dropped, once"
    if not dropped.keys() <= given:
        yield "only what was found is dropped"
    named = case.named()
    if list(packed.chosen) != [name for name in named if name in packed.chosen]:
        yield "sections come in their order"
    if any(not ids or not set(ids) <= _known(named[name]).keys() for name, ids in chosen_ids(packed).items()):
        yield "a section holds its own items"


def _sums(case: Case, packed: Packing) -> Iterator[str]:
    if total(case, packed) > case.budget:
        yield "the budget is a wall"


def _walls(case: Case, packed: Packing) -> Iterator[str]:
    for name, items in packed.chosen.items():
        section = case.named()[name]
        if section.max_tokens is not None and size_of(section, items) > section.max_tokens:
            yield "a section's most is a wall"
        if len(items) > section.limit:
            yield "a section's limit is a wall"


def _always(case: Case, packed: Packing) -> Iterator[str]:
    standing = [section for section in case.sections if section.fixed]
    sizes = [size_of(section, packed.chosen.get(section.name, ())) for section in standing]
    if sum(sizes) > max(0, case.budget - case.frame) * ALWAYS:
        yield "fixed sections keep to their part"
    for section in standing:
        rank = [one.id for one in section.items]
        ids = chosen_ids(packed).get(section.name, [])
        if ids != sorted(ids, key=rank.index):
            yield "fixed sections keep the order of their items"


def _no_repeats(case: Case, packed: Packing) -> Iterator[str]:
    keys = Counter(key for items in packed.chosen.values() for one in items for key in one.keys)
    if any(times > 1 for times in keys.values()):
        yield "nothing is said twice"


def _min_score(case: Case, packed: Packing) -> Iterator[str]:
    competing = [one for name, items in packed.chosen.items() if not case.named()[name].fixed for one in items]
    if any(one.score is None or one.score < case.min_score for one in competing):
        yield "the minimum score is minded"


def _values(case: Case) -> dict[tuple[str, str], float]:
    """What each item that competes counts, by section and id: its score by its factor, which takes none of the first
    below the minimum score."""
    competing = [
        (section.name, one)
        for section in case.sections
        if not section.fixed
        for one in section.items
        if one.score is not None and one.score >= case.min_score
    ]
    scores = sorted((one.score or 0.0 for _, one in competing), reverse=True)
    least = scores[BEST_KEPT - 1] if len(scores) >= BEST_KEPT else 0.0
    values: dict[tuple[str, str], float] = {}
    for name, one in competing:
        value = (one.score or 0.0) * one.factor
        value = max(value, case.min_score) if (one.score or 0.0) >= least else value
        values[name, one.id] = max(value, values.get((name, one.id), 0.0))
    return values


def _best_first(case: Case, packed: Packing) -> Iterator[str]:
    """What is left out for the budget is no better than anything that is in."""
    reasons, values = {one.id: reason for one, reason in packed.dropped}, _values(case)
    named = case.named()
    ranks = [
        (
            value * named[name].boost * min(1.0, LONG_ITEM / max(1, price(_known(named[name])[item_id]))),
            reasons.get(item_id) == "budget",
        )
        for (name, item_id), value in values.items()
        if value >= case.min_score
        if reasons.get(item_id) == "budget" or item_id in chosen_ids(packed).get(name, [])
    ]
    least_packed = min((rank for rank, left_out in ranks if not left_out), default=float("inf"))
    if any(left_out and rank > least_packed + 1e-12 for rank, left_out in ranks):
        yield "the best goes in first"


def _length_factor(section: BoundedSection, item_id: str) -> float:
    return min(1.0, LONG_ITEM / max(1, price(_known(section)[item_id])))


def _reasons(case: Case, packed: Packing) -> Iterator[str]:
    """A reason is true at the end."""
    said = {key for items in packed.chosen.values() for one in items for key in one.keys}
    reasons, values = {one.id: reason for one, reason in packed.dropped}, _values(case)
    for section in case.sections:
        items = packed.chosen.get(section.name, ())
        for one in section.items:
            if one.id not in reasons:
                continue
            size = size_of(section, [*items, one])
            true = {
                "duplicate": bool(said & one.keys),
                "limit": len(items) >= section.limit,
                "score": not section.fixed and values.get((section.name, one.id), -1.0) < case.min_score,
                "section_budget": _beyond(case, section, size),
                "budget": section.fixed or _full(case, packed),
            }
            if not true[reasons[one.id]]:
                yield f"left out for {reasons[one.id]}, which is not so"


def _misfits(case: Case, packed: Packing) -> Iterator[str]:
    """What did not fit needed more than was left for it, and at least its own line."""
    dropped = {one.id: one for one, _ in packed.dropped}
    for item_id, misfit in packed.misfits.items():
        if item_id in dropped and not misfit.needed > misfit.left:
            yield "what did not fit needed more than was left"
        if item_id in dropped and misfit.needed < price(dropped[item_id]):
            yield "what did not fit needed its line"


def _beyond(case: Case, section: BoundedSection, size: int) -> bool:
    """Whether the section with this size is beyond its own bound or, if it is always there, beyond its part: no less
    than it wants, or than an equal part for each."""
    if section.max_tokens is not None and size > section.max_tokens:
        return True
    standing = sum(one.fixed for one in case.sections)
    if not section.fixed:
        return False
    return size > min(_wants(section), max(0, case.budget - case.frame) * ALWAYS / standing)


def _full(case: Case, packed: Packing) -> bool:
    """Whether some item that competes and is left out has no room in what the parts leave."""
    standing = [section for section in case.sections if section.fixed]
    used = sum(size_of(section, packed.chosen.get(section.name, ())) for section in standing)
    kept = min(sum(_wants(section) for section in standing), max(0, case.budget - case.frame) * ALWAYS)
    left = case.budget - total(case, packed) - (kept - used)
    frame = 0 if any(case.named()[name].framed for name in packed.chosen) else case.frame
    packed_ids = {one for ids in chosen_ids(packed).values() for one in ids}
    for section in case.sections:
        items = packed.chosen.get(section.name, ())
        for one in () if section.fixed else _known(section).values():
            grown = size_of(section, [*items, one]) - size_of(section, items) + (frame if section.framed else 0)
            if one.id not in packed_ids and (one.score or 0.0) >= 0 and grown > left:
                return True
    return False


def _wants(section: BoundedSection) -> Fraction:
    """What a section that is always there would take alone."""
    whole = size_of(section, section.items[: section.limit])
    return Fraction(whole if section.max_tokens is None else min(whole, section.max_tokens))
