"""The protocol of the exchange strategy: equal workers that send each other parts of their updates."""
