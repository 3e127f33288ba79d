"""``python -m otformer`` is the command ``otformer``."""

from otformer.cli.__main__ import main

if __name__ == "__main__":
    main()
