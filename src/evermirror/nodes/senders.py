"""The channels of the settings, as what sends to them."""

from __future__ import annotations

from collections.abc import Mapping

from evermirror.config import Channel, Config, split_host_port
from evermirror.edge.notify.dingtalk import DingTalk
from evermirror.edge.notify.mail import Mail, MailSettings, Tls
from evermirror.edge.notify.sender import Sender
from evermirror.edge.notify.syslog import Syslog, SyslogSettings, Transport
from evermirror.edge.notify.webhook import Webhook
from evermirror.edge.notify.wecom import WeCom


def make_senders(config: Config) -> Mapping[str, Sender]:
    """A sender for each channel, by its name. Nothing is opened yet."""
    return {name: _sender(channel) for name, channel in config.channels.items()}


def _sender(channel: Channel) -> Sender:
    url = channel.url.get_secret_value() if channel.url else ""
    secret = channel.secret.get_secret_value() if channel.secret else ""
    match channel.type:
        case "dingtalk":
            return DingTalk(url, secret, ca_file=channel.ca_file)
        case "wecom":
            return WeCom(url, ca_file=channel.ca_file)
        case "webhook":
            return Webhook(url, secret, ca_file=channel.ca_file)
        case "mail":
            return Mail(_mail(channel))
        case "syslog":
            host, port = split_host_port(channel.address or "")
            transport = Transport(channel.transport)
            return Syslog(SyslogSettings(host, port, transport, channel.facility, channel.ca_file))


def _mail(channel: Channel) -> MailSettings:
    return MailSettings(
        host=channel.host or "",
        port=channel.smtp_port,
        tls=Tls(channel.tls),
        sender=channel.sender or "",
        to=channel.to,
        username=channel.username or "",
        password=channel.password.get_secret_value() if channel.password else "",
        ca_file=channel.ca_file,
    )
