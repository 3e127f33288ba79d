"""Every claim of docs/theory.md and the pages beside it, made stronger in a copy of the tree: its test has to fail.

The claims are in claims.toml, the command is ``make mutations``, and the page that it writes is docs/theorem-tests.md.
"""
