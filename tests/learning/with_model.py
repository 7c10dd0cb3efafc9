"""Learning from end to end with a real language model: a film that is preferred today and known tomorrow, and what is
extracted of a conversation, session by session.

    .venv/bin/python -m tests.learning.with_model --base-url http://127.0.0.1:8080/v1 [--data FILE] [--sessions N]

FILE holds LoCoMo conversations; the first N sessions of the first one are read. A service is started with a data
directory of its own; `RECALLD_LLM_…` says more of the model. It ends with 1 where anything is wrong that is not the
model's answer: a status that is not declared, or a record that is not valid.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import httpx

from benchmarks.harness import folder, recalld

Json = dict[str, Any]

PAIR = {"agent_id": "films", "user_id": "ada"}
FILMS = (
    ("user", "Can you recommend me a film for tonight?"),
    ("assistant", "How about a romance?"),
    ("user", "I prefer action movies. I do not like romances."),
    ("assistant", "Then I recommend Action Blockbuster."),
)
OVER = ("succeeded", "partial", "failed")
CLEAN = ("llm_reply_invalid", "llm_unavailable")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base-url", required=True)
    parser.add_argument("--data", type=Path, help="LoCoMo conversations (JSON)")
    parser.add_argument("--sessions", type=int, default=4)
    parser.add_argument(
        "--seconds", type=float, default=240, help="how long what is learned of the film is waited for; 0: leave it out"
    )
    options = parser.parse_args()
    os.environ["RECALLD_LLM_BASE_URL"] = options.base_url
    with folder() as data, recalld(data) as server, httpx.Client(base_url=server.url, timeout=600) as api:
        _post(api, "/v1/agents", {"agent_id": "films", "name": "Films"})
        if options.seconds:
            _film(api, options.seconds)
        faults = _extract(api, options.data, options.sessions) if options.data else 0
        faults += _check(api)
    sys.exit(1 if faults else 0)


def _film(api: httpx.Client, seconds: float) -> None:
    started = time.monotonic()
    said = [{"role": role, "content": text} for role, text in FILMS]
    _post(api, "/v1/sessions/monday/messages", {**PAIR, "messages": said})
    operation = _post(api, "/v1/sessions/monday/end", None)
    while operation["status"] not in OVER and time.monotonic() - started < seconds:
        time.sleep(1)
        operation = api.get(f"/v1/operations/{operation['operation_id']}").json()
    print(f"film: {operation['status']} after {time.monotonic() - started:.0f} s, {operation['error'] or 'no error'}")
    for name, part in ((operation["result"] or {}).get("parts") or {}).items():
        print(f"  {name}: {json.dumps(part, ensure_ascii=False)}")
    for memory in _memories(api):
        print(f"  [{memory['memory_type']}, {memory['importance']}] {memory['content']}")
    profile = api.get("/v1/users/ada/profile")
    told = {name: value for name, value in profile.json().items() if value} if profile.is_success else {}
    print(f"  profile: {json.dumps(told, ensure_ascii=False)}")
    print(f"  summary: {api.get('/v1/sessions/monday').json()['summary']}")
    context = _post(api, "/v1/context", {**PAIR, "query": "Which film should I watch?", "session_id": "tuesday"})
    print("tomorrow's context:", context["text"], sep="\n")


def _extract(api: httpx.Client, data: Path, sessions: int) -> int:
    talk = json.loads(data.read_text(encoding="utf-8"))[0]["conversation"]
    faults = 0
    for number in range(1, sessions + 1):
        said = [
            {"role": "user" if turn["speaker"] == talk["speaker_a"] else "assistant", "content": turn["text"]}
            for turn in talk[f"session_{number}"]
        ]
        started = time.monotonic()
        body = {"agent_id": "talk", "user_id": "ada", "messages": said}
        answer = api.post("/v1/memories/extract", json=body)
        told = answer.json()
        fine = answer.status_code == 201 or (answer.status_code == 503 and told["code"] in CLEAN)
        faults += not fine
        took = f"{len(said)} messages, {time.monotonic() - started:.0f} s"
        if answer.is_success:
            print(f"session {number}: {took}: {told['created']} memories, dropped {told['dropped']}, {told['llm']}")
            for memory in told["items"]:
                print(f"  [{memory['memory_type']}, {memory['importance']}] {memory['content'][:200]}")
        else:
            print(f"session {number}: {took}: {answer.status_code} {told['code']}: {told['detail'][:300]}")
    return faults


def _check(api: httpx.Client) -> int:
    """Whatever the model said, what is stored is of the users that spoke and can be traced."""
    wrong = 0
    for memory in _memories(api):
        source = memory["source"]
        traced = source["origin"] == "extraction" and source["model"] and source["prompt_version"]
        wrong += not (traced and memory["user_id"] == "ada" and 0 <= memory["importance"] <= 1)
    print(f"{len(_memories(api))} memories, {wrong} that are not as they should be")
    return wrong


def _memories(api: httpx.Client) -> list[Json]:
    items: list[Json] = api.get("/v1/memories", params={"user_id": "ada", "limit": 100}).json()["items"]
    return [memory for memory in items if memory["memory_type"] != "message"]


def _post(api: httpx.Client, path: str, body: Json | None) -> Json:
    answer = api.post(path, json=body)
    if not answer.is_success:
        sys.exit(f"{path}: {answer.status_code} {answer.text}")
    told: Json = answer.json()
    return told


if __name__ == "__main__":
    main()
