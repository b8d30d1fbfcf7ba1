"""The protocols: plain state machines that every engine runs unchanged."""
