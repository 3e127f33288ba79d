"""Figures and pages: the style, the report, the trace page. It knows nothing of the experiments but the files they leave."""
