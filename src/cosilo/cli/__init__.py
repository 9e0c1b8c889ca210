"""The command line: one file a command; every command answers `--json` with one object on stdout."""
