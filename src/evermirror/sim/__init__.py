"""The world, faked: virtual time, upstreams and histories; also a user's command."""
