"""Made by tools/proto from proto/: not to be edited."""
