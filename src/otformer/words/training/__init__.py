"""Making the models that ship with otformer: four small Marian translators and a BERT-like encoder, from text to folders.

    python -m otformer.words.training prepare --out made/text          # vocabularies and token numbers, minutes on a CPU
    python -m otformer.words.training train en-fr --text made/text --out made/en-fr     # on a GPU
    python -m otformer.words.training ship en-fr --text made/text \
        --weights made/en-fr/model.safetensors --out models/en-fr
    python -m otformer.words.training score en-fr --text made/text --folder models/en-fr

Text: tatoeba_manythings and po_catalogs under OTFORMER_DATA, without every sentence of a test set
(words/align/bilingual.py).
"""
