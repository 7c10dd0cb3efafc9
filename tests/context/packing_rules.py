"""Cases for the packer, and every rule that it must keep, stated once more."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from app.context.items import Item
from app.context.packing import Chosen, Packed, Priced, Wanted, pack

FRAME = 5


@dataclass(frozen=True)
class Case:
    wanted: list[Wanted]
    budget: int
    frame: int = FRAME

    def packed(self) -> Packed:
        return pack(self.wanted, self.budget, self.frame)


# --- Making cases -----------------------------------------------------------------------------------------------------


def item(name: str, size: int, *same: str, yields: bool = False) -> Priced:
    return Priced(Item(name, "fact", name, same=frozenset(same)), name, name, size, yields)


def section(name: str, *sizes: int, share: int, limit: int = 99, title: int = 2, most: int | None = None) -> Wanted:
    return Wanted(name, [item(f"{name}{at}", size) for at, size in enumerate(sizes)], title, limit, share, most)


def a_section(random: Random, name: str, *, keys: str = "xyz", yielding: bool = True) -> Wanted:
    items = []
    for at in range(random.randint(0, 8)):
        same = random.sample(keys, min(len(keys), random.choice((0, 0, 1, 1, 2))))
        yields = yielding and bool(same) and random.random() < 0.3
        items.append(item(f"{name}{at}", random.randint(1, 30), *same, yields=yields))
    return Wanted(
        name,
        items,
        title_tokens=random.randint(0, 4),
        limit=random.randint(0, 8),
        share=random.randint(0, 60),
        most=random.choice((None, None, random.randint(0, 60))),
        framed=random.random() < 0.7,
    )


def a_case(random: Random, *, keys: str = "xyz", yielding: bool = True) -> Case:
    names = "abcd"[: random.randint(0, 4)]
    wanted = [a_section(random, name, keys=keys, yielding=yielding) for name in names]
    return Case(wanted, random.randint(1, 200), random.randint(0, 8))


# --- The rules, stated once more --------------------------------------------------------------------------------------


def broken(case: Case, packed: Packed) -> list[str]:
    """Every rule that the result breaks."""
    checks = (_once, _sums, _walls, _no_repeats, _reasons, _own_share)
    return sorted({rule for check in checks for rule in check(case, packed)})


def _once(case: Case, packed: Packed) -> Iterator[str]:
    given_in = Counter(one.item.id for wanted in case.wanted for one in wanted.items)
    came_out = Counter(one.item.id for chosen in packed.sections for one in chosen.items)
    came_out.update(item.id for item, _ in packed.dropped)
    if given_in != came_out:
        yield "each is packed or dropped, once"
    by_name = {wanted.name: wanted for wanted in case.wanted}
    if [chosen.name for chosen in packed.sections] != [
        name for name in by_name if name in {one.name for one in packed.sections}
    ]:
        yield "sections come by priority"
    for chosen in packed.sections:
        rank = [one.item.id for one in by_name[chosen.name].items]
        ids = [one.item.id for one in chosen.items]
        if not ids or not set(ids) <= set(rank) or ids != sorted(ids, key=rank.index):
            yield "items come as they were ranked, in their own section"


def _framed(case: Case, packed: Packed) -> bool:
    framed = {wanted.name for wanted in case.wanted if wanted.framed}
    return any(chosen.name in framed for chosen in packed.sections)


def _sums(case: Case, packed: Packed) -> Iterator[str]:
    titles = {wanted.name: wanted.title_tokens for wanted in case.wanted}
    total = case.frame if _framed(case, packed) else 0
    for chosen in packed.sections:
        size = titles[chosen.name] + sum(one.tokens for one in chosen.items)
        total += size
        if chosen.tokens != size:
            yield "a section's tokens add up"
    if packed.tokens != total:
        yield "all tokens add up"
    if total > case.budget:
        yield "the budget is a wall"


def _walls(case: Case, packed: Packed) -> Iterator[str]:
    by_name = {wanted.name: wanted for wanted in case.wanted}
    for chosen in packed.sections:
        wanted = by_name[chosen.name]
        size = wanted.title_tokens + sum(one.tokens for one in chosen.items)
        if wanted.most is not None and size > wanted.most:
            yield "a section's most is a wall"
        if len(chosen.items) > wanted.limit:
            yield "a section's limit is a wall"


def _no_repeats(case: Case, packed: Packed) -> Iterator[str]:
    keys = Counter(key for chosen in packed.sections for one in chosen.items for key in one.item.same)
    if any(times > 1 for times in keys.values()):
        yield "nothing is said twice"


def _reasons(case: Case, packed: Packed) -> Iterator[str]:
    """A reason is true at the end: what was left out for want of room would not fit into what is left."""
    said = {key for chosen in packed.sections for one in chosen.items for key in one.item.same}
    taken = {chosen.name: chosen for chosen in packed.sections}
    reasons = {item.id: reason for item, reason in packed.dropped}
    left = case.budget - sum(chosen.tokens for chosen in packed.sections)
    left -= case.frame if _framed(case, packed) else 0
    for wanted in case.wanted:
        chosen = taken.get(wanted.name, Chosen(wanted.name, [], 0))
        opening = 0 if chosen.items else wanted.title_tokens
        frame = case.frame if wanted.framed and not _framed(case, packed) else 0
        for one in wanted.items:
            cost = one.tokens + opening
            why = {
                "duplicate": bool(said & one.item.same),
                "limit": len(chosen.items) >= wanted.limit,
                "section_budget": wanted.most is not None and chosen.tokens + cost > wanted.most,
                "budget": cost + frame > left,
            }
            if one.item.id in reasons and not why[reasons[one.item.id]]:
                yield f"left out for {reasons[one.item.id]}, which is not so"


def _alone(wanted: Wanted) -> set[str]:
    """What a section takes within its own share when nobody is in its way: of its best, as many as its limit, those
    that fit."""
    own = wanted.share if wanted.most is None else min(wanted.share, wanted.most)
    kept: set[str] = set()
    said: set[str] = set()
    left, looked_at = own, 0
    for one in wanted.items:
        cost = one.tokens + (0 if kept else wanted.title_tokens)
        if one.yields or said & one.item.same or looked_at == wanted.limit:
            continue
        looked_at += 1
        if cost <= left:
            kept.add(one.item.id)
            said |= one.item.same
            left -= cost
    return kept


def _own_share(case: Case, packed: Packed) -> Iterator[str]:
    """Whoever else wants the room; only what says the same elsewhere may stand in the way."""
    taken = {one.item.id for chosen in packed.sections for one in chosen.items}
    claimed = case.frame
    for index, wanted in enumerate(case.wanted):
        claimed += wanted.share if wanted.most is None else min(wanted.share, wanted.most)
        others = {key for w in case.wanted[:index] for one in w.items for key in one.item.same}
        free = not others & {key for one in wanted.items for key in one.item.same}
        if claimed <= case.budget and free and not _alone(wanted) <= taken:
            yield "a section's own share is its own"
