"""Who may publish weights, so that a wait for a version that can never come is proved.

Rights are promises here too: a proof that nobody will publish needs a closed list of those who could. With
`run.weights(NAME, publishers=...)` the list is what was declared. Without, the usual is taken for granted: trainers publish, and
so do members of a role that has published under this name before. Whoever else tries is refused and told to declare it;
otherwise a judge that is about to publish for the first time would be accused of never doing it. A run without trainers in which
nobody has published yet promises nothing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import msgspec

from unknot.graph.ids import matches
from unknot.recovery.answers import check_name
from unknot.recovery.errors import ConfigError
from unknot.recovery.ports import Store

_USUAL = "trainer"


class PublishRights(msgspec.Struct, frozen=True):
    """What is known of the publishers of one name. declared: patterns of members, None if nobody has declared any.

    roles: of those who have published. trainers: whether the run has any.
    """

    declared: tuple[str, ...] | None = None
    roles: tuple[str, ...] = ()
    trainers: bool = False

    def patterns(self) -> tuple[str, ...] | None:
        """Who may publish, as patterns of members; None: anybody."""
        if self.declared is not None:
            return self.declared
        if not self.trainers and not self.roles:
            return None
        return tuple(f"{role}/*" for role in sorted({_USUAL, *self.roles}))

    def allow(self, member: str) -> bool:
        """Whether `member` may publish."""
        patterns = self.patterns()
        return patterns is None or any(matches(member, pattern) for pattern in patterns)


def rights_of(store: Store, name: str) -> PublishRights:
    """The rights as they stand."""
    declared, roles = store.command("HMGET", store.key("weights", name), "publishers", "roles")
    members = () if declared is not None else store.command("SMEMBERS", store.key("members"))
    return PublishRights(
        declared=None if declared is None else tuple(json.loads(declared)),
        roles=tuple(roles.decode().split(",")) if roles else (),
        trainers=any(member.startswith(f"{_USUAL}/".encode()) for member in members),
    )


def check_publish(store: Store, name: str, member: str) -> None:
    """ConfigError if `member` may not publish weights `name`."""
    rights = rights_of(store, name)
    if rights.allow(member):
        return
    patterns = rights.patterns() or ()
    raise ConfigError(
        what=f"{member} may not publish weights {name} ({', '.join(patterns)} may)",
        todo=f"declare who does before the members start: run.weights({name!r}, publishers=[..., {member!r}])",
    )


def declare_publishers(store: Store, name: str, publishers: Sequence[str]) -> None:
    """Say who alone publishes weights `name`.

    Args:
        store: of the run.
        name: of the weights.
        publishers: patterns of member names such as `judge/*`.

    Raises:
        ConfigError: it is declared otherwise already, or the list is empty.
    """
    check_name("set of weights", name)
    if not publishers or not all(isinstance(one, str) and one for one in publishers):
        raise ConfigError(
            what=f"publishers={publishers!r} of weights {name} names nobody", todo='give patterns of members, such as "judge/*"'
        )
    key = store.key("weights", name)
    wanted = json.dumps(list(publishers))
    if store.command("HSETNX", key, "publishers", wanted):
        return
    stands = store.command("HGET", key, "publishers").decode()
    if json.loads(stands) != list(publishers):
        raise ConfigError(
            what=f"the publishers of weights {name} are already declared otherwise ({', '.join(json.loads(stands))})",
            todo="declare them the same way everywhere, or use another run name",
        )
