"""The exchange strategy: equal workers without servers."""
