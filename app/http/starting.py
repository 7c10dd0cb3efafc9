"""Why the service does not start, kept for whoever started it; the framework would log it as a traceback."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.errors import RecalldError


class SaysWhy:
    """Wraps the app. `fault` is what its lifespan raised."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.fault: RecalldError | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            await self._app(scope, receive, send)
            return
        failed: list[Message] = []

        async def keep(message: Message) -> None:
            if message["type"] == "lifespan.startup.failed":
                failed.append(message)  # what it raises next tells whether the traceback in it says anything
            else:
                await send(message)

        try:
            await self._app(scope, receive, keep)
        except RecalldError as fault:
            self.fault = fault
            failed = [{**message, "message": ""} for message in failed]
            raise
        finally:
            for message in failed:
                await send(message)
