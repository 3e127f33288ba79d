"""Making what ships with otformer: four small Marian translators and a BERT-like encoder, alignment models, word vectors.

    python -m otformer.lab.translators prepare --out made/text          # vocabularies and token numbers, minutes on a CPU
    python -m otformer.lab.translators train en-fr --text made/text --out made/en-fr     # on a GPU
    python -m otformer.lab.translators ship en-fr --text made/text \
        --weights made/en-fr/model.safetensors --out models/en-fr
    python -m otformer.lab.translators score en-fr --text made/text --folder models/en-fr
    python -m otformer.lab.translators hmm --languages en-fr --out hmm.en-fr.npz          # minutes on a CPU
    python -m otformer.lab.translators vectors --languages en-fr --out vectors.en-fr.npz

Text: tatoeba_manythings and po_catalogs under OTFORMER_DATA, without any sentence of a test set
(words/text/training_text.py).
"""
