"""Messages to people: DingTalk, WeCom, mail, syslog, webhooks. One file each, ``sender.py`` their promise."""
