"""Commands: each module has a `main()` and explains itself with `--help`."""
