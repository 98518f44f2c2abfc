"""What people are told: rules looked at, the book of alerts, channels."""
