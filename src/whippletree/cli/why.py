"""`whippletree why`: what keeps a message, a stream, an event, a perspective or a subscriber, in sentences."""

from __future__ import annotations

import click

from whippletree.cli import ask, console
from whippletree.cli.config import as_json, takes
from whippletree.settings import Settings

_MEANINGS = {
    "critical": (
        *(" is parked ", "no live instance", "has no owner", "nobody follows", "is draining", "is gone"),
        *("was given up", "has stopped at"),
    ),
    "warning": (
        *("failed ", " has ended", "held by", "wait for", "has stored in", "is paused"),
        *("does not have it", "has not come to it"),
    ),
    "well": (" has it", "has gone past it", "is finished"),
}
"""What a sentence means for its reader, by the words that only such sentences have."""


@click.command()
@click.argument("thing")
@takes(*ask.PLACE)
@as_json
def why(thing: str, as_json: bool, **arguments: str | None) -> None:
    """Say why THING does not move.

    THING is the id of a message, an event or a stream, the key of a stream, the name of a perspective, a receptor or a
    subscriber, or outbox or inbox.
    """
    sentences = [row[0] for row in ask.rows(Settings.load(**arguments), "why", thing)]
    if as_json:
        console.show_json(sentences)
        return
    for sentence in sentences:
        tell(sentence)


def tell(sentence: str) -> None:
    """Print a sentence as it is, in the colour of what it means."""
    meaning = next((m for m, words in _MEANINGS.items() if any(word in sentence for word in words)), "")
    console.show(console.marked(sentence, meaning))
