"""The signature of messages to webhooks: the receiver, who has the same secret, knows who sent them and when.

    Evermirror-Signature: t=1731744000,v1=5257a869e7ecebeda32affa62cdca3fa51cad7e77a0e56ff536d0ce8e108d8bd

``v1`` is HMAC-SHA256 in hex, with the secret as the key, over ``t``, a dot and the body, byte for byte.
Whoever checks it also looks at ``t``, so that a message that was overheard cannot be sent again later.
"""

from __future__ import annotations

import hashlib
import hmac

SIGNATURE_HEADER = "Evermirror-Signature"


def signature(secret: str, at: int, body: bytes) -> str:
    """The header's value; ``at`` is UTC in seconds."""
    signed = hmac.new(secret.encode("utf-8"), b"%d." % at + body, hashlib.sha256).hexdigest()
    return f"t={at},v1={signed}"
