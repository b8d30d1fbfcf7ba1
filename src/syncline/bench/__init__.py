"""How long a round takes: Syncline beside what a user would pick instead, in one run on one machine."""
