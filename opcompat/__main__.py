"""`python -m opcompat`: the command line of the interpreter's own environment."""

from opcompat.cli import main

if __name__ == "__main__":
    main()
