"""Projects of groups at forges: found, made at targets, followed; and how long credentials last."""
