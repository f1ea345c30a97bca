"""The demo corpus: a small English-German grammar that writes its own parallel text."""
