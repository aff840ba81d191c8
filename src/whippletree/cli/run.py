"""`whippletree run`: one instance of a service, until a signal ends it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from whippletree.app import App
    from whippletree.service import Service


@click.command()
@click.argument("application", metavar="MODULE:APP")
@click.option("--concurrency", type=click.IntRange(min=1), default=20, show_default=True, help="Receptors at once.")
@click.option(
    "--transactions", type=click.IntRange(min=1), default=6, show_default=True, help="Transactions open at once."
)
@click.option("--work", "kinds", multiple=True, help="A kind of work to do; may be given several times. Default: all.")
@click.option(
    "--grace", type=click.FloatRange(min=0), default=30, show_default=True, help="Seconds for begun work at the end."
)
@click.option("--lease", type=click.FloatRange(min=1), default=60, show_default=True, help="Seconds of a lease.")
@click.option(
    "--longest-lease",
    type=click.FloatRange(min=1),
    default=3600,
    show_default=True,
    help="Seconds after which what hangs is left to another instance.",
)
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True
)
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--prometheus", type=click.IntRange(1, 65535), metavar="PORT", help="Serve metrics to Prometheus there.")
def run(
    application: str,
    concurrency: int,
    transactions: int,
    kinds: tuple[str, ...],
    grace: float,
    lease: float,
    longest_lease: float,
    log_level: str,
    log_format: str,
    prometheus: int | None,
) -> None:
    """Run an instance of the service MODULE:APP. Start as many as you like, on as many machines as you like.

    SIGTERM and SIGINT finish what is begun and give back the rest; a second one ends at once.
    """
    import asyncio
    import logging

    from whippletree.claim.coordinator import CoordinatorSettings
    from whippletree.cli.json_log import JsonFormatter
    from whippletree.service import KINDS, Service, ServiceSettings
    from whippletree.work.loop import LoopSettings
    from whippletree.work.settings import ReceptorSettings

    logging.basicConfig(level=log_level.upper(), format="%(asctime)s %(levelname)s %(name)s %(message)s")
    if log_format == "json":
        for handler in logging.getLogger().handlers:
            handler.setFormatter(JsonFormatter())
    settings = ServiceSettings(
        kinds=kinds or KINDS,
        pool_size=transactions + 4,
        grace=grace,
        receptors=ReceptorSettings(concurrency=concurrency, transactions=transactions),
        coordinator=CoordinatorSettings(lease_seconds=lease),
        loop=LoopSettings(longest_lease=longest_lease),
    )
    service = Service(load(application), settings)
    if prometheus is not None:
        _serve_metrics(service, prometheus)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_run(service))


def _serve_metrics(service: Service, port: int) -> None:
    from whippletree import telemetry
    from whippletree.errors import InvalidSetting

    try:
        from prometheus_client import REGISTRY, start_http_server
    except ImportError:
        raise InvalidSetting("--prometheus needs prometheus_client; install whippletree[prometheus]") from None
    telemetry.prometheus(service, service.app.name, REGISTRY)
    start_http_server(port)


async def _run(service: Service) -> None:
    import asyncio
    import os
    import signal

    from whippletree import log

    loop, signals = asyncio.get_running_loop(), 0

    def ask(number: signal.Signals) -> None:
        nonlocal signals
        signals += 1
        if signals > 1:
            log.ending_at_once()
            os._exit(128 + number)
        log.ending(number.name, service.settings.grace)
        service.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ask, number)
    await service.run()


def load(application: str) -> App:
    """The app that MODULE:APP names."""
    import importlib
    import sys

    from whippletree.app import App
    from whippletree.errors import InvalidSetting

    module_name, _, attribute = application.partition(":")
    # As `python -m` does: the program lies where it is started.
    sys.path.insert(0, "")
    try:
        found = getattr(importlib.import_module(module_name), attribute or "app")
    except ModuleNotFoundError as error:
        if error.name is None or not module_name.startswith(error.name):
            raise
        raise InvalidSetting(f"there is no module {module_name!r} here; name it as in `import`") from None
    except AttributeError:
        raise InvalidSetting(f"{module_name} has no {attribute or 'app'}; say for example shop:app") from None
    if not isinstance(found, App):
        raise InvalidSetting(f"{application} is a {type(found).__name__}, not an App")
    return found


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
