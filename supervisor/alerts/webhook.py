"""Where alerts go and how they are signed: Standard Webhooks 1.0.

The package `standardwebhooks` takes the wall-clock fields of a time and calls them UTC, whatever their zone;
so only aware UTC times ever reach it. The signature covers `id.timestamp.body` with the very bytes that are
sent, and the timestamp is that of the attempt, since receivers refuse old ones.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from urllib.parse import urlsplit

import msgspec

from unknot.recovery.errors import ConfigError
from unknot.supervisor.alerts.alert import Alert
from unknot.supervisor.config import Config, secret_of
from unknot.supervisor.config_values import Secret, mask_url

SECRET_PREFIX = "whsec_"
SECRET_BYTES = range(24, 65)


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One receiver: the address, and the secret that it shares with us."""

    url: str
    secret: Secret

    @property
    def shown(self) -> str:
        """The address as it may be logged."""
        return mask_url(self.url)

    @property
    def fingerprint(self) -> str:
        """Tells this address from another without saying it."""
        return hashlib.sha256(self.url.encode()).hexdigest()[:16]


def endpoint_of(config: Config, env: Mapping[str, str] = os.environ) -> Endpoint | None:
    """The receiver that is set, None if there is none.

    Raises ConfigError for an address without a usable secret.
    """
    return None if config.webhook_url is None else endpoint(config.webhook_url, secret_of(config, env))


def endpoint(url: str, secret: Secret | None) -> Endpoint:
    """A receiver that can be used. Raises ConfigError."""
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
        raise ConfigError(what="the webhook address is neither http nor https", todo="write https://host/…")
    if secret is None:
        raise ConfigError(
            what="a webhook address is set, but no secret to sign alerts with",
            todo="set SUPERVISOR_WEBHOOK_SECRET or webhook_secret_file (whsec_…)",
        )
    check_secret(secret)
    return Endpoint(url=url, secret=secret)


def check_secret(secret: Secret) -> None:
    """Refuse a secret that no receiver could use. Raises ConfigError, which never shows any of it."""
    todo = 'write whsec_ and the base64 of 24 to 64 random bytes: echo "whsec_$(openssl rand -base64 32)"'
    text = secret.reveal()
    if not text.startswith(SECRET_PREFIX):
        raise ConfigError(what="the webhook secret does not begin with whsec_", todo=todo)
    coded = text.removeprefix(SECRET_PREFIX)
    try:
        key = base64.b64decode(coded + "=" * (-len(coded) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise ConfigError(what="the webhook secret is not base64 after whsec_", todo=todo) from None
    if len(key) not in SECRET_BYTES:
        raise ConfigError(what=f"the webhook secret has {len(key)} bytes", todo=todo)


def headers(alert: Alert, secret: Secret, *, at: float) -> dict[str, str]:
    """The headers of one attempt at `at`, seconds since the epoch."""
    from standardwebhooks.webhooks import Webhook

    moment = datetime.fromtimestamp(int(at), UTC)
    return {
        "content-type": "application/json",
        "user-agent": "unknot-supervisor",
        "webhook-id": alert.id,
        "webhook-timestamp": str(int(at)),
        "webhook-signature": Webhook(secret.reveal()).sign(alert.id, moment, alert.body),
    }
