"""What Prometheus exporters of other machines tell."""
