"""The verbs: each module has a `main()` and a `--help` worth reading."""
