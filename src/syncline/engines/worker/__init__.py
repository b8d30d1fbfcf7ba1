"""The worker's side, inside the user's program: tables, updates, and the connections to the other processes."""
