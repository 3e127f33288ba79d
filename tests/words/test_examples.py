"""The shipped sentence pairs: every word linked or left alone on purpose, in range, and readable as Pharaoh."""

import pytest

from otformer.words.text.examples import examples

# Words that may well have no partner; anything else alone is a slip of the hand.
ENGLISH, FRENCH, GERMAN = "a do does on the to", "aux d' de des du l' la le les à", "an das die in sie ,"
FUNCTION = {word for language in (ENGLISH, FRENCH, GERMAN) for word in language.split()}


@pytest.mark.parametrize(("languages", "size"), [("en-fr", 60), ("de-en", 40)])
def test_there_are_as_many_as_promised_and_no_two_alike(languages, size):
    found = examples(languages)
    assert len(found) == size
    assert len({example.source for example in found}) == size
    assert len({example.target for example in found}) == size


@pytest.mark.parametrize("languages", ["en-fr", "de-en"])
def test_every_word_is_linked_or_alone_never_both(languages):
    for source, target, links, alone in examples(languages):
        for side, words in enumerate((source, target)):
            linked = {link[side] for link in links}
            assert 5 <= len(words) <= 15, words
            assert linked | alone[side] == set(range(len(words))), words
            assert not linked & alone[side], words


@pytest.mark.parametrize("languages", ["en-fr", "de-en"])
def test_only_function_words_are_alone(languages):
    for source, target, _, alone in examples(languages):
        for words, places in zip((source, target), alone, strict=True):
            assert {words[k].lower() for k in places} <= FUNCTION, (words, places)


@pytest.mark.parametrize("languages", ["en-fr", "de-en"])
def test_punctuation_is_apart_and_meets_itself(languages):
    for source, target, links, _ in examples(languages):
        for i, j in links:
            if source[i] in ".?" or target[j] in ".?":
                assert source[i] == target[j]
        assert not any(len(word) > 1 and word[-1] in ".,?!" for word in source + target)


def test_a_word_has_at_most_four_partners():
    # "s' il vous plaît" and "est tombée en panne" have four; more would be a mistake
    for example in examples("en-fr") + examples("de-en"):
        for i, j in example.links:
            assert sum(a == i for a, _ in example.links) <= 4
            assert sum(b == j for _, b in example.links) <= 3


def test_other_direction_is_the_same_pairs_exchanged():
    for here, there in zip(examples("de-en"), examples("en-de"), strict=True):
        assert (here.source, here.target) == (there.target, there.source)
        assert {(j, i) for i, j in here.links} == there.links
    with pytest.raises(ValueError, match="languages must be one of"):
        examples("en-xx")
