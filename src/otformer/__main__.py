"""``python -m otformer`` is the command ``otformer``."""

from otformer.cli.main import main

if __name__ == "__main__":
    main()
