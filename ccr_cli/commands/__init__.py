"""One thin file per subcommand: parse the flags, call one stage, print."""
