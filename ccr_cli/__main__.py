"""`python -m ccr_cli`: the same program as `ccr`."""

from ccr_cli.cli import main

if __name__ == "__main__":
    main()
