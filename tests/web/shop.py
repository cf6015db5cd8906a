"""A web application with a worker beside it, as a real server runs it."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from yaoki import JobContext, Yaoki

app = Yaoki(os.environ["SHOP_URL"])
LET_GO = Path(os.environ.get("LET_GO", __file__))
"""The file that handlers wait for."""


@app.job("plain")
def plain(ctx: JobContext, order: int) -> str:
    ctx.log("begins")
    while not LET_GO.exists():
        time.sleep(0.02)
    return f"order {order} by {os.getpid()}"


@app.job("async")
async def coroutine(order: int) -> str:
    while not LET_GO.exists():
        await asyncio.sleep(0.02)
    return f"order {order} by {os.getpid()}"


@asynccontextmanager
async def lifespan(web: Starlette) -> AsyncIterator[None]:
    async with app.worker_beside(concurrency=4, grace=float(os.environ.get("GRACE", "20"))):
        yield


async def order(request: Request) -> JSONResponse:
    kind = plain if request.path_params["kind"] == "plain" else coroutine
    job = await kind.aenqueue(order=7)
    return JSONResponse({"job": job.id}, 202)


async def show(request: Request) -> JSONResponse:
    job = await app.aget(request.path_params["id"])
    return JSONResponse({"status": job.status, "result": job.result})


async def alive(request: Request) -> JSONResponse:
    return JSONResponse({"pid": os.getpid()})


web = Starlette(
    lifespan=lifespan,
    routes=[
        Route("/orders/{kind}", order, methods=["POST"]),
        Route("/jobs/{id:int}", show),
        Route("/alive", alive),
    ],
)
