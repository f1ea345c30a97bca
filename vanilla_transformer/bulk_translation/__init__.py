"""Large corpora: translated in shards by many processes, and resumed after an interruption."""
