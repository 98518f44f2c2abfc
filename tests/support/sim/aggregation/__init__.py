"""An aggregator in a faked world: workers that lie, links that lag, crashes; in virtual time."""
