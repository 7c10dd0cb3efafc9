"""A service of this process on a real port: what is sent passes the server that serves it otherwise."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn

from app.api.connections import ConnectionLimits, guarded
from tests.conftest import Service, _with_state


@asynccontextmanager
async def on_a_port(service: Service) -> AsyncIterator[str]:
    """The address. Requests that are under way at the end are cut off."""
    config = uvicorn.Config(
        _with_state(service.app, {"resources": service.resources}),
        port=0,
        http=guarded(ConnectionLimits(service.resources.settings.connections.by_address)),
        lifespan="off",
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    config.load()
    server.lifespan = config.lifespan_class(config)
    await server.startup()
    looking = asyncio.create_task(server.main_loop())
    try:
        host, port = server.servers[0].sockets[0].getsockname()[:2]
        yield f"http://{host}:{port}"
    finally:
        server.should_exit = True
        await looking
        await server.shutdown()
