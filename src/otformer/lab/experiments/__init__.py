"""One module per figure or claim; `registry` lists them, `runner` runs them. Modules with an underscore are helpers."""
