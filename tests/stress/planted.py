"""A service with bugs, for the checker to see: it prints its address, breaks on every second number, refuses names that
its document allows, and names a method that it has not."""

import socket

import uvicorn
from fastapi import FastAPI, HTTPException, Response

app = FastAPI()


@app.get("/half/{number}")
def half(number: int) -> int:
    return 1 // (number % 2)


@app.get("/greeting", responses={400: {}})
def greeting(name: str) -> str:
    if len(name) < 1000:
        raise HTTPException(400)
    return name


@app.options("/greeting", include_in_schema=False)
def options() -> Response:
    return Response(status_code=405, headers={"Allow": "GET, DELETE"})


if __name__ == "__main__":
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="critical")).run(sockets=[listening])
