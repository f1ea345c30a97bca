"""`python -m vanilla_transformer`: the command `vanilla`."""

from vanilla_transformer.command_line.verbs import main


if __name__ == "__main__":
    main()
