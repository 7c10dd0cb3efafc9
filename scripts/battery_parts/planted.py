"""A service with a bug, for the checker to see: it prints its address, and breaks on every second number."""

import socket

import uvicorn
from fastapi import FastAPI

app = FastAPI()


@app.get("/half/{number}")
def half(number: int) -> int:
    return 1 // (number % 2)


if __name__ == "__main__":
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="critical")).run(sockets=[listening])
