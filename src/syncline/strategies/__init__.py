"""What a run is made of: who talks to whom, and with which parts."""
