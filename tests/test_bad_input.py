"""Bad values at every public entry point: one sentence of ours that names the argument."""

from __future__ import annotations

import inspect
import os
import traceback
from pathlib import Path

import bad_input
import bad_input_features
import bad_input_learners
import pytest
from bad_input import names_argument, write_examples

import fieldfit as ff
from fieldfit._registry import PUBLIC
from fieldfit.errors import InvalidInputError

PACKAGE = str(Path(ff.__file__).parent)
ENTRIES = {
    entry.name: entry
    for table in (bad_input, bad_input_features, bad_input_learners)
    for entry in table.entries()
}
CASES = {
    f"{entry.name}({argument}={name})": (entry, argument, value)
    for entry in ENTRIES.values()
    for argument, name, value in entry.cases()
}


@pytest.fixture(scope="module", autouse=True)
def folder_with_examples(tmp_path_factory):
    before = Path.cwd()
    os.chdir(tmp_path_factory.mktemp("files"))
    write_examples()
    yield
    os.chdir(before)


def test_the_table_is_large():
    assert len(CASES) >= 9000


# -- what the table has ----------------------------------------------------------------------

#: Public names that nobody calls with arguments of their own.
NOT_CALLED = {
    "the library makes them": """InferenceResult MapResult Stability Evaluation Fit ProblemValue
        ErrorBound OutOfFold ChunkScore CountingNumbers ShardAnswers Comparison HeldOutScores
        MethodRow""",
    "made by their class methods": "Batch Block RegionGraph",
    "abstract": "Entropy Inference Objective Learner Problem MatchingProblem",
    "no function": "WIDEST Validation Answer Features",
    "without arguments": "region_feature_names",
    "errors and warnings": """ConvergenceWarning CheckpointWarning InvalidInputError FileFormatError
        FileWriteError MissingDependencyError NoGainWarning TooLargeError WorkersLostError
        ZeroWeightError""",
    "made by estimators, of data that they have checked": """Part ExactMatchings MatchingExample
        potentials_of""",
}
#: Methods of public classes that the library calls, with what it has checked before.
HOOKS = {
    "of objectives and losses": """evaluate evaluate_sets prediction templates generator
        to_learn_with value_and_derivative values""",
    "of entropies and inferences": "compute run_graph plan record tape_bytes",
    "of penalties and given scores": "by_block scaled",
    "of problems": "give_warm_start dual_model first_weights evaluate_part weight_matrix",
    "of vectors over a graph": """sum_variables sum_factors max_variables add_potentials gradient of
        of_tree_weights""",
    "of rows and scores of comparisons": "gain joined losses mean excess from_json",
    "of matchings": "coefficients degrees edge_weights matrix of_partners of_weights point",
}


def words_of(table):
    return {word for text in table.values() for word in text.split()}


def public_objects():
    """Names of the registry and of modules outside it."""
    found = {name: entry.load() for name, entry in PUBLIC.items()}
    for module in bad_input_features.MODULES:
        found |= {name: getattr(module, name) for name in module.__all__}
    return found


def methods_of(made):
    """Public methods with arguments, fieldfit's own."""
    for cls in made.__mro__:
        for name, found in vars(cls).items() if cls.__module__.startswith("fieldfit.") else ():
            is_method = inspect.isfunction(found) or isinstance(found, (classmethod, staticmethod))
            if is_method and not name.startswith("_"):
                arguments = set(inspect.signature(getattr(made, name)).parameters) - {"self"}
                if arguments:
                    yield name


def test_every_public_name_is_in_the_table():
    lacking = set(public_objects()) - set(ENTRIES) - words_of(NOT_CALLED)
    assert not lacking, f"no bad values for {sorted(lacking)}"


def test_every_public_method_is_in_the_table():
    left_out, hooks = words_of(NOT_CALLED), words_of(HOOKS)
    lacking = {
        f"{name}.{method}"
        for name, made in public_objects().items()
        if inspect.isclass(made) and not (name in left_out and inspect.isabstract(made))
        for method in methods_of(made)
        if f"{name}.{method}" not in ENTRIES and method not in hooks
    }
    # base classes: what derives from them is in the table
    lacking -= {"ExactMatchings.evaluate", "Learner.minimize", "Entropy.counting_numbers"}
    assert not lacking, f"no bad values for {sorted(lacking)}"


def test_what_is_left_out_exists():
    """A name that is gone, or that has come into the table, must not stay in the lists."""
    objects = public_objects()
    assert words_of(NOT_CALLED) <= set(objects) - set(ENTRIES)
    methods = {m for made in objects.values() if inspect.isclass(made) for m in methods_of(made)}
    assert words_of(HOOKS) <= methods


@pytest.mark.parametrize("name", ENTRIES)
def test_good_values_are_taken(name):
    """Otherwise the cases below would say nothing about the value that is bad."""
    ENTRIES[name].call(**ENTRIES[name].given)


@pytest.mark.parametrize("case", CASES)
def test_bad_values_are_refused_in_a_sentence(case):
    entry, argument, value = CASES[case]
    with pytest.raises((TypeError, ValueError)) as caught:
        entry.call(**{**entry.given, argument: value})
    error, message = caught.value, str(caught.value)
    last = traceback.extract_tb(error.__traceback__)[-1]
    assert last.filename.startswith(PACKAGE), f"{last.filename}: {error!r}"
    assert isinstance(error, InvalidInputError), repr(error)
    assert names_argument(message, argument), message
    assert "\n" not in message, message
