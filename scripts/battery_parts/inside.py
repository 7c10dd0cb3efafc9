"""Parts that call the service in this process: tenancy, bad input, and a model of what must come back."""

import random
import tempfile
import time
from itertools import cycle
from pathlib import Path
from typing import Any
from unittest.mock import patch

from app.api import strict
from app.storage.filters import Eq
from app.storage.repository import Repository
from scripts.battery_parts.row import Row, quantile
from scripts.battery_parts.service import service
from scripts.battery_parts.walk import Walk
from tests.api import bad_input as cases
from tests.api.contract import ANY_ROUTE, Contract
from tests.api.tenancy import OPEN, Strangers
from tests.conftest import Service
from tests.mongodb import start_mongodb

SLOWEST_P99 = 0.05
STEPS = 50


async def tenancy(calls: int) -> Row:
    async with service() as made:
        strangers = await Strangers.among(made, 4)
        before = await strangers.held()
        found = await strangers.run(calls)
        changed = await strangers.held() != before
        operations = {op.name for op in Contract(made.app).operations()} - OPEN
        uncovered = operations - set(found.statuses)
    figures = {"calls": found.calls, "operations": len(operations), "leaks": len(found.leaks)}
    figures |= {"uncovered": len(uncovered), "500s": found.five_hundreds, "victims changed": int(changed)}
    faults = len(found.leaks) + len(uncovered) + found.five_hundreds + changed
    return Row("strangers in 4 tenants", figures, faults, await _leak_is_seen(), [*found.leaks, *uncovered])


async def _leak_is_seen() -> bool:
    async def find_one(self: Repository, doc_id: str) -> Any:
        docs = await self.store.find(self.collection, None, Eq(self.collection.id_field, doc_id), limit=1)
        return docs[0] if docs else None

    async with service() as made:
        strangers = await Strangers.among(made, 1)
        with patch.object(Repository, "find_one", find_one):
            return bool((await strangers.run(200)).leaks)


async def bad_input(most: int) -> Row:
    faults: list[str] = []
    times: list[float] = []
    async with service() as made:
        session = {"session_id": cases.SESSION, "agent_id": "a", "user_id": "u"}
        await made.client.post("/v1/sessions", json=session)
        contract = Contract(made.app)
        ours = [op for op in contract.operations() if "operating" not in op.spec["tags"]]
        every = [case for op in ours for part in cases.PARTS for case in part(contract, op)]
        random.Random(1).shuffle(every)
        for case in every if most >= len(every) else every[:most]:
            faults += await _refused(made, contract, case, times)
        for case in cycle(every):
            if len(times) >= most:
                break
            faults += await _refused(made, contract, case, times)
    p99 = quantile(times, 0.99)
    figures = {"requests": len(times), "faults": len(faults), "refused p99 ms": round(p99 * 1000, 1)}
    slow = int(p99 > SLOWEST_P99)
    return Row("bad input to every operation", figures, len(faults) + slow, await _crash_is_seen(), faults)


async def _refused(made: Service, contract: Contract, case: cases.Case, times: list[float]) -> list[str]:
    headers = [(name.encode(), value.encode("latin-1")) for name, value in case.headers.items()]
    started = time.perf_counter()
    answer = await made.client.request(case.operation.method, case.url, headers=headers, content=case.body())
    times.append(time.perf_counter() - started)
    fault = None if answer.status_code in case.statuses else f"{answer.status_code} instead of {case.statuses}"
    if fault is None and answer.status_code not in ANY_ROUTE:
        fault = contract.problem(answer) or contract.check(case.operation, answer)
    return [] if fault is None else [f"{case.name}: {fault}"]


async def _crash_is_seen() -> bool:
    """Whoever looks at query strings breaks."""
    async with service() as made:
        contract = Contract(made.app)
        (operation,) = [op for op in contract.operations() if op.name == "get_session"]
        found: list[str] = []
        with patch.object(strict, "check", side_effect=KeyError):
            for case in cases.path_cases(contract, operation):
                found += await _refused(made, contract, case, [])
    return any("500 instead of" in fault for fault in found)


async def model(sequences: int) -> Row:
    """Random walks, each beside dictionaries that say what must come back; the same ones on both engines."""
    diverged: list[str] = []
    caught = True
    with tempfile.TemporaryDirectory(prefix="recalld-battery-") as made, start_mongodb(Path(made) / "data") as mongodb:
        for store in ("embedded", mongodb.uri):
            async with service(store=store) as started:
                for seed in range(sequences):
                    diverged += await Walk(started, seed).run(STEPS)
                caught &= bool(await Walk(started, -1, forgets=True).run(STEPS))
    figures = {"walks on each engine": sequences, "steps": 2 * sequences * STEPS, "divergences": len(diverged)}
    return Row("walks beside a model", figures, len(diverged), caught, diverged)
