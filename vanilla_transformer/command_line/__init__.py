"""What all commands share: options, help, errors as sentences, standard streams."""
