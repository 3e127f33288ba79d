"""otformer: a transformer with frozen softmax-attention weights solves optimal transport, layer by layer."""

from otformer.network.transformer import AligningTransformer

__all__ = ["AligningTransformer"]
__version__ = "0.1.0"
