"""`python -m cosilo` is the command `cosilo`."""

from cosilo.cli.main import main

if __name__ == "__main__":
    main()
