"""The stream between coordinator and workers: what a connection is, over gRPC or within one process."""
