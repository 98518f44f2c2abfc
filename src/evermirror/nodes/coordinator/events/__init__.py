"""What others may follow: the feed, its desk, and deliveries to other servers."""
