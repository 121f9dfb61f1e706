"""Features of texts: shapes, windows, documents, links, options that stand by themselves."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fieldfit as ff
from fieldfit.features._text_document import is_shouted
from fieldfit.features.text import (
    COMMON_WORDS,
    TextFeatures,
    document_features,
    drop_rare,
    repeated_capitalised,
    sentence_features,
    word_shape,
)

NOTHING = TextFeatures(
    word=False,
    lower=False,
    shape=False,
    prefixes=0,
    suffixes=0,
    window=0,
    conjunctions=False,
    nearby=0,
    place=False,
    topic=False,
    spelling=False,
    truecase=False,
    context=False,
    runs=False,
    acronyms=False,
)
ARTICLE = [
    ["SOCCER", "-", "GERMANY", "BEAT", "WALES", "."],
    ["Anna", "Smith"],
    ["Yesterday", "the", "German", "Football", "Association", "(", "GFA", ")", "won", "."],
    ["Smith", "saw", "Germany", "and", "Smith", "slept", "."],
    ["The", "GFA", "paid", "10", "marks", "to", "smith", "."],
]


def only(**options):
    return dataclasses.replace(NOTHING, **options)


def added(**options):
    """What an option adds to each token of the article, the constant left out."""
    features = document_features(ARTICLE, options=only(**options))
    return [
        [{key: value for key, value in token.items() if key != "bias"} for token in tokens]
        for tokens in features
    ]


# -- words --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "shape", "short"),
    [
        ("the", "xxx", "x"),
        ("Yesterday", "Xxxxx", "Xx"),
        ("GERMANY", "XXXX", "X"),
        ("10-year", "dd-xxxx", "d-x"),
        ("3.5", "d.d", "d.d"),
        ("Müller", "Xxxxx", "Xx"),
        ("", "", ""),
        ("...", "...", "."),
    ],
)
def test_shapes(word, shape, short):
    assert word_shape(word) == shape
    assert word_shape(word, 1) == short


@given(st.text(max_size=12), st.integers(1, 6))
def test_a_shape_keeps_at_most_a_run_and_no_letters(word, max_run):
    shape = word_shape(word, max_run)
    assert len(shape) <= len(word)
    runs = [len(run) for run in _runs(shape)]
    assert max(runs, default=0) <= max_run
    assert len(_runs(word_shape(word, 10**6))) == len(runs)


def _runs(text):
    found = []
    for character in text:
        if found and found[-1][0] == character:
            found[-1] += character
        else:
            found.append(character)
    return found


def test_without_options_there_is_only_the_constant():
    features = document_features(ARTICLE, options=NOTHING)
    assert all(token == {"bias": True} for tokens in features for token in tokens)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"word": True}, {"w": "Anna"}),
        ({"lower": True}, {"lower": "anna"}),
        ({"shape": True}, {"shape": "Xxxx", "form": "Xx"}),
        ({"prefixes": 2}, {"prefix1": "A", "prefix2": "An"}),
        ({"suffixes": 9}, {"suffix1": "a", "suffix2": "na", "suffix3": "nna"}),
        ({"ngrams": 2}, {f"ngram:{pair}": True for pair in ("<A", "An", "nn", "na", "a>")}),
        ({"word": True, "window": 1}, {"w": "Anna", "w[-1]": "<s>", "w[+1]": "Smith"}),
        ({"nearby": 3}, {"behind:smith": True}),
        ({"place": True}, {"place": "1", "place|shape": "1|Xxxx"}),
        ({"topic": True}, {"topic": "SOCCER"}),
        ({"spelling": True}, {"document:once": True}),
        ({"truecase": True}, {"true": "Anna", "true shape": "?"}),
        ({"context": True}, {}),
        ({"runs": True}, dict.fromkeys(
            ("run first:anna", "run last:smith", "run length:2", "run place:0/1"), True
        )),
    ],
)  # fmt: skip
def test_every_option_stands_by_itself(options, expected):
    assert added(**options)[1][0] == expected


def test_conjunctions_join_neighbours():
    token = added(conjunctions=True)[3][2]
    assert token["shape[-1]|shape|shape[+1]"] == "xxx|Xxxxx|xxx"
    assert token["lower[-1]|lower"] == "saw|germany"
    assert token["shape|lower[+1]"] == "Xxxxx|and"
    assert added(conjunctions=True)[3][0]["lower[-1]|shape"] == "<s>|Xxxxx"


def test_tags_are_columns_with_a_window():
    tags = {"pos": ["NNP", "VBD"]}
    tokens = sentence_features(["Ann", "ran"], tags=tags, options=only(window=1, conjunctions=True))
    assert tokens[1]["pos"] == "VBD"
    assert tokens[1]["pos[-1]"] == "NNP"
    assert tokens[1]["pos[+1]"] == "</s>"
    assert tokens[0]["pos|pos[+1]"] == "NNP|VBD"
    with_none = sentence_features(["Ann", "ran"], tags=tags, options=NOTHING)
    assert with_none == [{"bias": True, "pos": "NNP"}, {"bias": True, "pos": "VBD"}]


def test_nearby_words_do_not_say_how_far():
    token = added(nearby=2)[3][2]
    assert set(token) == {"before:smith", "before:saw", "behind:and", "behind:smith"}


# -- documents ----------------------------------------------------------------------------


def test_sentences_in_capitals():
    assert is_shouted(ARTICLE[0])
    assert is_shouted(["10", "-", "9"])
    assert not is_shouted(ARTICLE[2])
    place = added(place=True)
    assert place[0][0]["place"] == "0 capitals"
    assert place[4][0]["place"] == "body"


def test_topic_is_for_capitalised_tokens():
    topic = added(topic=True)
    assert topic[2][1] == {}
    assert topic[4][1] == {"topic": "SOCCER"}


def test_spelling_collects_the_document():
    spelling = added(spelling=True)
    # Germany: in the headline and capitalised within a sentence; so is the other occurrence
    assert spelling[0][2] == {"document:headline": True, "document:capitalised": True}
    assert spelling[3][2] == spelling[0][2]
    # Smith: also begins a sentence, which says nothing, and once in lower case
    assert spelling[3][0] == {"document:capitalised": True, "document:lower": True}
    assert spelling[4][1] == {"document:capitalised": True, "document:capitals": True}
    assert spelling[3][5] == {"document:lower": True, "document:once": True}


def test_truecase_is_the_spelling_within_sentences():
    true = added(truecase=True)
    assert true[0][2] == {"true": "Germany", "true shape": "Xxxxx"}
    assert true[0][3] == {"true": "BEAT", "true shape": "?"}
    assert true[0][1] == {"true": "-"}
    assert true[4][0] == {"true": "the", "true shape": "xxx"}
    # Smith and smith are equally common within sentences, Smith is first
    assert true[3][0] == {"true": "Smith", "true shape": "Xxxxx"}
    assert true[3][4] == {"true": "Smith"}


def test_context_is_that_of_all_capitalised_occurrences():
    context = added(context=True)
    names = {"document[-1]:anna", "document[+1]:</s>", "document[-1]:<s>", "document[+1]:saw"}
    assert set(context[1][1]) == names | {"document[-1]:and", "document[+1]:slept"}
    assert context[3][0] == context[3][4] == context[1][1]
    assert context[4][6] == {}  # smith, in lower case
    assert context[1][0] == {}  # Anna, only once


def test_runs_are_those_of_the_whole_document():
    runs = added(runs=True)
    names = ("run first:anna", "run last:smith", "run length:2", "run place:1/0")
    assert runs[3][0] == runs[3][4] == dict.fromkeys(names, True)
    assert runs[4][6] == {}  # smith, in lower case
    assert runs[0][2] == {}  # in a sentence of capitals every word would be in the run
    assert runs[2][3]["run length:3"] is runs[2][3]["run place:1/1"] is True
    long = document_features([["A1", "B1", "C1", "D1", "E1", "f"]], options=only(runs=True))
    assert set(long[0][2]) >= {"run length:4", "run place:2/2"}


def test_acronyms_are_spelt_out_by_runs_of_capitals():
    marks = added(acronyms=True)
    assert marks[2][6] == marks[4][1] == {"acronym": True}
    assert [bool(token) for token in marks[2][1:5]] == [False, True, True, True]
    linked = [["Bank", "of", "Spain", "(", "BS", ")"], ["Bank", "of", "paper", "Spain"]]
    found = document_features(linked, options=only(acronyms=True))
    assert "acronym" in found[0][4]
    broken = document_features([linked[1], ["the", "BS"]], options=only(acronyms=True))
    assert "acronym" not in broken[1][1]


def test_sentences_without_words_are_no_trouble():
    features = document_features([[], ["Ann"], []])
    assert [len(tokens) for tokens in features] == [0, 1, 0]
    assert document_features([]) == []


def test_kept_dictionaries_are_not_handed_out():
    first = sentence_features(["Ann"])
    first[0]["mine"] = True
    assert "mine" not in sentence_features(["Ann"])[0]


# -- links and rare features ---------------------------------------------------------------


def test_links_join_equal_capitalised_words():
    words = ["The", "Fed", "said", "the", "Fed", "I", "saw", "FED", "I"]
    assert repeated_capitalised(words) == [(1, 4)]
    assert repeated_capitalised(words, fold=True) == [(1, 4), (1, 7), (4, 7)]
    assert repeated_capitalised(["The", "cat", "The"]) == []
    assert repeated_capitalised(["The", "cat", "The"], exclude=()) == [(0, 2)]
    assert all(word == word.lower() for word in COMMON_WORDS)


@given(st.lists(st.sampled_from(["Ann", "Bob", "x", "The"]), max_size=30), st.integers(2, 6))
def test_links_grow_with_the_words_when_groups_are_large(words, max_links):
    pairs = repeated_capitalised(words, max_links=max_links)
    expected = 0
    for name in ("Ann", "Bob"):
        count = words.count(name)
        expected += count * (count - 1) // 2 if count <= max_links else count - 1
    assert len(set(pairs)) == len(pairs) == expected
    assert pairs == sorted(pairs)
    assert all(first < second and words[first] == words[second] for first, second in pairs)


def test_rare_features_are_dropped_by_their_value():
    sequences = [[{"w": "a", "n": 1.0}, {"w": "b", "n": 2.0}], [{"w": "a"}], []]
    assert drop_rare(sequences) == [[{"w": "a"}, {}], [{"w": "a"}], []]
    assert drop_rare(sequences, 1) == sequences
    assert sequences[0][0] == {"w": "a", "n": 1.0}


# -- with the estimators, errors, speed ------------------------------------------------------


def test_chains_and_skip_chains_take_them():
    tokens = [token for sentence in document_features(ARTICLE) for token in sentence]
    words = [word for sentence in ARTICLE for word in sentence]
    labels = ["NAME" if word.lower() in ("anna", "smith") else "O" for word in words]
    starts = [6, 8, 18, 25]
    example = (tokens, repeated_capitalised(words), starts)
    crf = ff.SkipChainCRF("trw", l2=0.1).fit([example], [labels])
    assert crf.score([example], [labels]) > 0.95
    chain = ff.ChainCRF(l2=0.1).fit([tokens], [labels])
    assert "document[-1]:anna" in chain.attributes_
    assert "w:Smith" in chain.attributes_


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: TextFeatures(prefixes=-1), ["prefixes", "at least 0", "-1"]),
        (lambda: TextFeatures(window=1.5), ["window", "1.5"]),
        (lambda: sentence_features(["a"], tags={"pos": []}), ["tags['pos']", "1 words", "0"]),
        (lambda: document_features([["a"]], tags={"pos": []}), ["tags['pos']", "1 sentences", "0"]),
        (lambda: repeated_capitalised([], max_links=1), ["max_links", "at least 2", "1"]),
    ],
)  # fmt: skip
def test_bad_input_is_refused_in_one_sentence(call, words):
    with pytest.raises(ff.InvalidInputError) as caught:
        call()
    for word in words:
        assert word in str(caught.value)
