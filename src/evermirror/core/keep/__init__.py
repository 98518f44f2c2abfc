"""What stays when upstream throws something away, and when upstream is not followed at all."""
