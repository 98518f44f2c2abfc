"""Who asks: the HTTP API, the web page, the command line."""
