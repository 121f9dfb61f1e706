"""The one table of public names: where each object is defined, and what users may call it.

A new algorithm is one file and one line here.  From this table come

* the names of `fieldfit` itself and of its sub-namespaces (``fieldfit.inference`` and so on), which
  are imported when they are first used: many kernels, scikit-learn and SciPy take long;
* the objects that a model file may hold (`fieldfit.io.model_file`); it cannot name anything else;
* the names that ``objective=``, ``infer(method=...)`` and the command line take;
* the type stubs ``__init__.pyi`` for editors and type checkers, written by ``make stubs``;
* what the laws of the tests are applied to.

Importing this module imports nothing else of the package.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any

__all__ = [
    "INFERENCE_METHODS",
    "MAP_METHODS",
    "MODELS",
    "MODULES",
    "NAMESPACES",
    "OBJECTIVES",
    "OBJECTIVES_OF",
    "PUBLIC",
    "Entry",
    "Method",
    "Spec",
    "exports",
    "find",
    "public_paths",
    "register",
    "stored_classes",
    "stub",
    "write_stubs",
]

#: Sub-namespaces whose ``__init__`` exports what this table says.
NAMESPACES = (
    *("graph", "entropy", "inference", "objectives", "learners", "models", "shards", "io"),
    *("comparison", "errors"),
)

#: Modules outside the table whose ``__all__`` is public; some need an optional dependency.
MODULES = ("features.text", "features.image", "metrics", "plot", "torch")


@dataclass(frozen=True)
class Entry:
    """A public object: its name and module, without ``"fieldfit."``.

    ``top``: it is also a name of `fieldfit` itself.  ``stored``: it is a dataclass of options whose
    objects may be part of a model file.  The first part of the module is its sub-namespace.
    """

    name: str
    module: str
    top: bool = False
    stored: bool = False

    @property
    def namespace(self) -> str:
        return self.module.split(".")[0]

    def load(self) -> Any:
        """The object, imported now."""
        return getattr(import_module(f"fieldfit.{self.module}"), self.name)


@dataclass(frozen=True)
class Spec:
    """A class of the table with options, as data: nothing is imported before `make`.

    Examples
    --------
    >>> Spec("SumProduct", {"entropy": Spec("TreeReweighted"), "tol": 1e-6}).make().tol
    1e-06
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def make(self, **more: Any) -> Any:
        """The object; ``more`` options are added."""
        given = {
            name: value.make() if isinstance(value, Spec) else value
            for name, value in self.options.items()
        }
        return find(self.name)(**given, **more)


TOP, STORED = "top", "stored"


def _entries(module: str, names: str, *flags: str) -> list[Entry]:
    return [Entry(name, module, TOP in flags, STORED in flags) for name in names.split()]


_TABLE = [
    # structure and numbers of a model, and what a run returns
    *_entries("graph.factor_graph", "FactorGraph", TOP),
    *_entries("graph.potentials", "Beliefs Potentials", TOP),
    *_entries("graph.result", "InferenceResult MapResult", TOP),
    *_entries("graph.batch", "Batch"),
    *_entries("graph.template", "Block Template"),
    # entropies
    *_entries("entropy.counting_numbers", "Bethe Convex TreeReweighted", TOP, STORED),
    *_entries("entropy.counting_numbers", "CountingNumbers Entropy"),
    *_entries("entropy.configuration_weights", "WIDEST EntropyWeights"),
    # inferences
    *_entries("inference.base", "Inference"),
    *_entries("inference.messages.sum_product", "SumProduct", TOP, STORED),
    *_entries("inference.mean_field.mean_field", "MeanField", TOP, STORED),
    *_entries("inference.junction_tree.exact", "Exact", TOP, STORED),
    *_entries("inference.brute_force", "BruteForce", TOP, STORED),
    *_entries("inference.gibbs.gibbs", "Gibbs", TOP, STORED),
    *_entries("inference.free_energy.belief_optimization", "BeliefOptimization", TOP, STORED),
    *_entries("inference.free_energy.double_loop", "DoubleLoop", TOP, STORED),
    *_entries("inference.kikuchi.generalized_sum_product", "GeneralizedSumProduct", TOP, STORED),
    *_entries("inference.kikuchi.hypertree_entropy", "HypertreeReweighted", TOP, STORED),
    *_entries("inference.convex.convex_dual", "ConvexDual", TOP, STORED),
    *_entries("inference.convex.convex_primal", "ConvexPrimal", TOP, STORED),
    *_entries("inference.convex.interior_point", "InteriorPoint", STORED),
    *_entries("inference.frank_wolfe.frank_wolfe", "FrankWolfe", TOP, STORED),
    *_entries("inference.log_determinant.log_determinant", "LogDeterminant", STORED),
    *_entries("inference.messages.unrolled_sum_product", "UnrolledSumProduct", STORED),
    *_entries("inference.mean_field.unrolled_mean_field", "UnrolledMeanField", STORED),
    # MAP searches
    *_entries("inference.map.max_product", "MaxProduct", TOP, STORED),
    *_entries("inference.map.exact_map", "ExactMap", TOP, STORED),
    *_entries("inference.map.linear_program", "LinearProgram", TOP, STORED),
    *_entries("inference.map.local_search", "LocalSearch", TOP, STORED),
    *_entries("inference.map.cycle_cuts", "CycleCuts", TOP, STORED),
    *_entries("inference.map.graph_cut.max_flow", "MaxFlow", TOP, STORED),
    *_entries("inference.map.graph_cut.roof_duality", "RoofDuality", TOP, STORED),
    *_entries("inference.map.graph_cut.probing", "Probing", STORED),
    *_entries("inference.matching.assignment", "Assignment", TOP, STORED),
    *_entries("inference.matching.perfect_matching", "PerfectMatching", TOP, STORED),
    *_entries("inference.planar.planar_ising", "PlanarIsing", TOP, STORED),
    *_entries("inference.auto", "Map", TOP, STORED),
    # by name, and what is asked of a model besides
    *_entries("inference.auto", "decode infer", TOP),
    *_entries("inference.auto", "Automatic", STORED),
    *_entries("inference.junction_tree.exact", "sample_exactly"),
    *_entries("inference.kikuchi.region_graph", "RegionGraph"),
    *_entries("inference.likelihood_bounds", "log_likelihood_bounds"),
    *_entries("inference.matching.matching_marginals", "matching_marginals"),
    *_entries("inference.matching.matching_partition", "matching_partition"),
    *_entries(
        "inference.matching.matching_polytope", "MatchingPolytope matching_edges matching_graph"
    ),
    *_entries("inference.messages.schedule", "grid_clique_order"),
    *_entries("inference.planar.planar_ising", "planar_ising_log_partition"),
    *_entries("inference.second_order.linear_response", "LinearResponse"),
    *_entries("inference.second_order.stability", "Stability stability"),
    # objectives
    *_entries("objectives.base", "Evaluation Objective"),
    *_entries("objectives.camel", "Camel", TOP, STORED),
    *_entries("objectives.contrastive", "ContrastiveFreeEnergy", TOP, STORED),
    *_entries("objectives.contrastive_divergence", "ContrastiveDivergence", TOP, STORED),
    *_entries("objectives.implicit_loss", "ImplicitLoss", TOP, STORED),
    *_entries("objectives.independent", "Independent", STORED),
    *_entries("objectives.likelihood", "Likelihood", TOP, STORED),
    *_entries("objectives.marginal_losses", "MarginalLoss", STORED),
    *_entries("objectives.max_margin", "MaxMargin Perceptron", TOP, STORED),
    *_entries("objectives.mle_struct", "MLEStruct", TOP, STORED),
    *_entries("objectives.moment_matching", "MomentMatching", TOP, STORED),
    *_entries("objectives.piecewise", "Piecewise", TOP, STORED),
    *_entries("objectives.procedural_loss", "ProceduralLoss", TOP, STORED),
    *_entries("objectives.pseudo_likelihood", "PseudoLikelihood", TOP, STORED),
    # learners
    *_entries("learners.lbfgs", "LBFGS", TOP, STORED),
    *_entries("learners.stochastic", "Adam SGD", TOP, STORED),
    *_entries("learners.camel_rounds", "CamelRounds", STORED),
    *_entries("learners.closed_form", "ClosedForm", STORED),
    *_entries("learners.dual_frank_wolfe", "DualFrankWolfe", STORED),
    *_entries("learners.base", "Fit Learner Penalty Validation"),
    *_entries("learners.loop", "time_limit"),
    *_entries("learners.problem", "Part Problem ProblemValue TemplateProblem potentials_of"),
    # estimators
    *_entries("models.chain.chain_crf", "ChainCRF", TOP),
    *_entries("models.chain.skip_chain_crf", "SkipChainCRF", TOP),
    *_entries("models.graphs.graph_crf", "GraphCRF", TOP),
    *_entries("models.graphs.factor_types", "FactorType", STORED),
    *_entries("models.grid_crf", "GridCRF", TOP),
    *_entries("models.matching_crf", "MatchingCRF", TOP),
    *_entries("models.mixture_field", "MixtureField", TOP),
    *_entries("models.pairwise.ising_model", "IsingModel", TOP),
    *_entries("models.pairwise.potts_model", "PottsModel", TOP),
    *_entries("models.loading", "load", TOP),
    *_entries("models.penalties", "RelativePenalty", STORED),
    *_entries("models.decoding_error_bound", "ErrorBound error_bound"),
    *_entries("models.pairwise.potts_model", "sequence_weights"),
    *_entries("models.matching_problems", "ExactMatchings MatchingExample MatchingProblem"),
    # files
    *_entries("io.fg", "read_fg write_fg", TOP),
    *_entries("io.uai", "read_uai write_uai", TOP),
    *_entries("io.uai_answers", "Answer MapAnswer MarginalAnswer PartitionAnswer"),
    *_entries("io.uai_answers", "format_answer read_answer write_answer"),
    *_entries("io.uai_answers", "read_evidence write_evidence"),
    *_entries("io.images", "read_image_archive"),
    *_entries("io.samples", "read_fasta read_samples"),
    *_entries("io.alignments", "read_alignment"),
    *_entries("io.sequences", "read_columns"),
    # which method
    *_entries("comparison.compare_methods", "compare", TOP),
    *_entries("comparison.comparison_result", "Comparison"),
    *_entries("comparison.method_search", "MethodRow"),
    *_entries("comparison.held_out_scores", "HeldOutScores"),
    # data on disk
    *_entries("shards.reading", "Shards"),
    *_entries("shards.writing", "write"),
    *_entries("shards.workers", "Workers"),
    *_entries("shards.answers", "ShardAnswers read_answers"),
    # errors and warnings
    *_entries("errors", "ConvergenceWarning InvalidInputError", TOP),
    *_entries("errors", "CheckpointWarning FileFormatError FileWriteError"),
    *_entries("errors", "MissingDependencyError NoGainWarning TooLargeError WorkersLostError"),
    *_entries("errors", "ZeroWeightError"),
]

#: All public objects by name.
PUBLIC: dict[str, Entry] = {entry.name: entry for entry in _TABLE}

#: Estimators that a model file may name.
MODELS = tuple(
    name
    for name, entry in PUBLIC.items()
    if entry.namespace == "models" and name.endswith(("CRF", "Model", "Field"))
)


# -- names of objectives ------------------------------------------------------------------


def _surrogate(entropy: str) -> Spec:
    # Messages to a millionth: the value is then right to rounding (it is stationary in the
    # messages), the gradient to about this, and a pass costs half of one to 1e-8.
    inference = Spec("SumProduct", {"entropy": Spec(entropy), "tol": 1e-6})
    return Spec("Likelihood", {"inference": inference})


#: What ``objective=`` of the estimators and of the command line takes.
OBJECTIVES: dict[str, Spec] = {
    "likelihood": Spec("Likelihood", {"inference": Spec("Exact")}),
    "bethe": _surrogate("Bethe"),
    "trw": _surrogate("TreeReweighted"),
    "trw-kikuchi": Spec(  # the tolerance of SumProduct: gradients of many samples need it
        "Likelihood",
        {
            "inference": Spec(
                "GeneralizedSumProduct", {"entropy": Spec("HypertreeReweighted"), "tol": 1e-8}
            )
        },
    ),
    "convex": _surrogate("Convex"),
    "log-determinant": Spec("Likelihood", {"inference": Spec("LogDeterminant")}),
    "mean-field": Spec("Likelihood", {"inference": Spec("MeanField")}),
    "pseudolikelihood": Spec("PseudoLikelihood"),
    "piecewise": Spec("Piecewise"),
    "independent": Spec("Independent"),
    "camel0": Spec("Camel", {"variant": "camel0"}),
    "camel": Spec("Camel", {"variant": "cccp"}),
    "camel-empirical": Spec("Camel", {"variant": "cccp-empirical"}),
    "cd": Spec("ContrastiveDivergence"),
    "cf-bethe": Spec("ContrastiveFreeEnergy", {"family": "bethe"}),
    "cf-mean-field": Spec("ContrastiveFreeEnergy", {"family": "mean-field"}),
    "mle-struct": Spec("MLEStruct"),
    "implicit": Spec("ImplicitLoss"),
    "procedural": Spec("ProceduralLoss"),
    "moment-matching": Spec("MomentMatching"),
    "perceptron": Spec("Perceptron"),
    "max-margin": Spec("MaxMargin"),
}

#: Names that make sense for a family of models: labels given features, samples of a pairwise Markov
#: random field, matchings.
OBJECTIVES_OF: dict[str, tuple[str, ...]] = {
    "conditional": tuple(name for name in OBJECTIVES if name != "moment-matching"),
    "pairwise": (
        *("pseudolikelihood", "likelihood", "bethe", "trw", "trw-kikuchi", "convex"),
        *("log-determinant", "mean-field"),
        *("moment-matching", "piecewise", "camel0", "camel", "camel-empirical", "cd"),
        *("cf-bethe", "cf-mean-field", "mle-struct", "independent"),
    ),
    "matching": ("mle-struct", "likelihood", "independent", "max-margin", "perceptron"),
}


# -- names of methods ---------------------------------------------------------------------


@dataclass(frozen=True)
class Method:
    """What a name that `infer` or `decode` takes stands for.

    ``options`` are the arguments of `infer` or `decode` that it uses; others are refused.
    ``renamed`` are fields of the class that have another name than the argument; a path such as
    ``"messages.damping"`` leads into an option object.
    """

    spec: Spec
    options: tuple[str, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)

    def make(self, **given: Any) -> Any:
        """The object; arguments that are ``None`` or not among the options are left out."""
        found = self.spec.make()
        for name, value in given.items():
            if value is not None and name in self.options:
                found = _with(found, self.renamed.get(name, name), value)
        return found


def _with(options: Any, path: str, value: Any) -> Any:
    """An option object with another value of a field, or of a field of a field."""
    name, _, rest = path.partition(".")
    if rest:
        value = _with(getattr(options, name), rest, value)
    return replace(options, **{name: value})


_SWEEPS = ("damping", "tol", "max_iter")
_MESSAGES = ("schedule", *_SWEEPS)
_LIMITS = ("time_limit", "random_state")
_ROUNDS = {"max_iter": "max_rounds"}
_IN_MAP = {"max_memory": "exact.max_memory"} | {name: f"messages.{name}" for name in _MESSAGES}


def _sum_product(entropy: str) -> Method:
    return Method(Spec("SumProduct", {"entropy": Spec(entropy)}), _MESSAGES)


#: What ``infer(method=...)`` takes.
INFERENCE_METHODS: dict[str, Method] = {
    "auto": Method(Spec("Automatic"), ("max_memory", "tol", "max_iter")),
    "exact": Method(Spec("Exact"), ("max_memory",)),
    "bp": _sum_product("Bethe"),
    "belief-optimization": Method(Spec("BeliefOptimization"), ("tol", "max_iter")),
    "double-loop": Method(Spec("DoubleLoop"), ("tol", "max_iter"), _ROUNDS),
    "kikuchi": Method(Spec("GeneralizedSumProduct"), _SWEEPS, _ROUNDS),
    "trw": _sum_product("TreeReweighted"),
    "trw-kikuchi": Method(
        Spec("GeneralizedSumProduct", {"entropy": Spec("HypertreeReweighted")}), _SWEEPS, _ROUNDS
    ),
    "convex": _sum_product("Convex"),
    "interior-point": Method(Spec("InteriorPoint"), ("tol", "max_iter")),
    "log-determinant": Method(Spec("LogDeterminant"), ("tol", "max_iter")),
    "mean-field": Method(Spec("MeanField"), (*_SWEEPS, "random_state")),
    "frank-wolfe": Method(Spec("FrankWolfe"), ("tol", "max_iter")),
    "gibbs": Method(Spec("Gibbs"), ("max_iter", "random_state"), {"max_iter": "n_sweeps"}),
    "brute-force": Method(Spec("BruteForce")),
}
#: What ``decode(method=...)`` takes.
MAP_METHODS: dict[str, Method] = {
    "auto": Method(Spec("Map"), ("max_memory", *_LIMITS, *_MESSAGES), _IN_MAP),
    "map": Method(Spec("Map"), ("max_memory", *_LIMITS, *_MESSAGES), _IN_MAP),
    "exact": Method(Spec("ExactMap"), ("max_memory",)),
    "integer": Method(Spec("ExactMap", {"method": "integer"}), ("max_memory", "time_limit")),
    "max-product": Method(Spec("MaxProduct"), _MESSAGES),
    "bp": Method(Spec("MaxProduct"), _MESSAGES),
    "trw": Method(Spec("MaxProduct", {"entropy": Spec("TreeReweighted")}), _MESSAGES),
    "max-flow": Method(Spec("MaxFlow"), ("max_iter",)),
    "roof-duality": Method(Spec("RoofDuality")),
    "probing": Method(Spec("Probing"), ("time_limit",)),
    "assignment": Method(Spec("Assignment")),
    "perfect-matching": Method(Spec("PerfectMatching")),
    "planar": Method(Spec("PlanarIsing")),
    "lp": Method(Spec("LinearProgram")),
    "local-search": Method(Spec("LocalSearch"), _LIMITS),
    "cycle-cuts": Method(Spec("CycleCuts"), ("max_iter", "time_limit")),
}


# -- access -------------------------------------------------------------------------------


def find(name: str) -> Any:
    """The public object of a name, imported now."""
    return PUBLIC[name].load()


def register(entry: Entry) -> None:
    """Add an object at run time, as one line of the table would."""
    PUBLIC[entry.name] = entry


def stored_classes() -> dict[str, str]:
    """Classes whose objects a model file may hold, with their modules."""
    return {name: f"fieldfit.{entry.module}" for name, entry in PUBLIC.items() if entry.stored}


def names_of(namespace: str) -> list[str]:
    """Public names of a sub-namespace, or of the package itself for ``""``."""
    chosen = [
        entry.name
        for entry in PUBLIC.values()
        if (entry.top if namespace == "" else entry.namespace == namespace)
    ]
    return sorted(chosen, key=lambda name: (not name.isupper(), name))


def public_paths() -> dict[str, str]:
    """Where users import each public name, such as ``"fieldfit.GridCRF"``, and its namespace.

    Names of the package itself belong to the namespace that defines them.  A module of `MODULES`
    that needs what is not installed is left out.
    """
    paths = {}
    for namespace in NAMESPACES:
        for name in names_of(namespace):
            package = "fieldfit" if PUBLIC[name].top else f"fieldfit.{namespace}"
            paths[f"{package}.{name}"] = namespace
    for module in MODULES:
        try:
            names = import_module(f"fieldfit.{module}").__all__
        except ImportError:
            continue
        paths |= {f"fieldfit.{module}.{name}": module for name in names}
    return paths


def exports(package: str) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """``__all__``, ``__getattr__`` and ``__dir__`` of a package, as the table says."""
    namespace = package.removeprefix("fieldfit").lstrip(".")
    names = names_of(namespace)

    def get(name: str) -> Any:
        entry = PUBLIC.get(name)
        belongs = entry is not None and (
            entry.top if not namespace else entry.namespace == namespace
        )
        if entry is None or not belongs:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return entry.load()

    return names, get, lambda: sorted({*names, "__doc__", "__name__"})


# -- stubs --------------------------------------------------------------------------------


def stub(namespace: str) -> str:
    """``__init__.pyi`` of a sub-namespace (``""``: of the package)."""
    lines = ['"""Written by make stubs from fieldfit._registry."""', ""]
    lines += [f"from fieldfit import {other} as {other}" for other in NAMESPACES if not namespace]
    lines += sorted(
        f"from fieldfit.{PUBLIC[name].module} import {name} as {name}"
        for name in names_of(namespace)
    )
    if not namespace:
        lines += ["", "__version__: str"]
    quoted = "".join(f'    "{name}",\n' for name in names_of(namespace))
    return "\n".join([*lines, "", f"__all__ = [\n{quoted}]"]) + "\n"


def write_stubs() -> None:
    """Write the stubs of all namespaces that are packages (``make stubs``)."""
    root = Path(__file__).parent
    for namespace in ("", *NAMESPACES):
        if (root / namespace).is_dir():
            (root / namespace / "__init__.pyi").write_text(stub(namespace))
