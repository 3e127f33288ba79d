"""``python -m otformer.cli``."""

from otformer.cli.main import main

main()
