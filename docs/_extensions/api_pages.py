"""Pages of the API reference, one for each public name, and links to them from everywhere.

`fieldfit._registry` says what is public.  This extension writes ``api/index.rst`` and a page for
each namespace, from which autosummary makes the others; ``GridCRF`` in back quotes, in a page or
in a docstring, becomes a link, and so do the types in signatures.
"""

import re
import sys
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import GenericAlias

from docutils import nodes
from sphinx import addnodes
from sphinx.ext.autodoc.mock import mock

import fieldfit
from fieldfit._registry import public_paths

#: Namespaces in the order of the reference, and what users find there.
NAMESPACES = {
    "models": ("Models", "Estimators with ``fit`` and ``predict``: start here."),
    "objectives": ("Objectives", "What a fit minimises: ``objective=`` of an estimator."),
    "inference": ("Inference", "Marginals, bounds on log Z, samples and best labellings."),
    "entropy": ("Entropies", "What makes sum-product Bethe's, tree-reweighted or convex."),
    "graph": ("Graphs", "Factor graphs, potentials, beliefs and results."),
    "learners": ("Learners", "What moves the weights: ``learner=`` of an estimator."),
    "comparison": ("Comparison", "Several objectives on your own data, and a recommendation."),
    "io": ("Files", "Reading and writing models, answers, sequences, samples and pictures."),
    "shards": ("Shards", "Data larger than memory, and several machines."),
    "features.text": ("Features of text", "Dictionaries of features for the tokens of texts."),
    "features.image": ("Features of pictures", "Superpixels, their graphs and their features."),
    "metrics": ("Metrics", "Scores of predictions beyond accuracy."),
    "plot": ("Plots", "Networks and contact maps; needs Matplotlib."),
    "torch": ("PyTorch", "Fields on top of networks; needs PyTorch."),
    "errors": ("Errors", "Errors and warnings that are raised on purpose."),
}


#: Where users import each public name; filled when a build begins.
PUBLIC_NAMES = {}


@contextmanager
def torch_or_mock():
    """Let ``fieldfit.torch`` be imported without PyTorch, and forget it afterwards."""
    if find_spec("torch"):
        yield
        return
    with mock(["torch"]):
        yield
    if sys.modules.pop("fieldfit.torch", None):
        del fieldfit.torch


def all_paths():
    """As `public_paths`, with PyTorch's part even where PyTorch is not installed."""
    with torch_or_mock():
        return public_paths()


def name_of(path):
    """Without the namespace, and regardless of case."""
    return path.rpartition(".")[2].lower()


def titled(text, line="="):
    return f"{text}\n{line * len(text)}\n"


def is_alias(path):
    """Whether a name stands for a type such as ``dict[str, Any]``: autodoc takes it for a class."""
    module, _, name = path.rpartition(".")
    with torch_or_mock():
        return isinstance(getattr(import_module(module), name), GenericAlias)


def alias_page(path):
    """Reference of a name for a type."""
    module, _, name = path.rpartition(".")
    means = getattr(import_module(module), name)
    return f"{titled(name)}\n.. py:data:: {path}\n\n   Short for ``{means}``.\n"


def namespace_page(namespace, paths):
    """Reference of one namespace: a table of its names, from which their pages are made."""
    title, summary = NAMESPACES.get(namespace, (namespace, ""))
    aliases = "".join(f"   generated/{path}\n" for path in paths if is_alias(path))
    aliases = aliases and f"\nNames of types:\n\n.. toctree::\n   :maxdepth: 1\n\n{aliases}"
    paths = [path for path in paths if not is_alias(path)]
    names = "".join(f"   ~{path}\n" for path in sorted(paths, key=name_of))
    return (
        f"{titled(title)}\n{summary}  All are names of ``fieldfit.{namespace}``; those "
        "whose page says ``fieldfit.NAME`` are names of ``fieldfit`` as well.\n\n"
        f".. autosummary::\n   :toctree: generated\n   :nosignatures:\n\n{names}{aliases}"
    )


def index_page(namespaces):
    """First page of the reference."""
    rows = "".join(
        f"   * - :doc:`{title} <{name}>`\n     - ``fieldfit.{name}``\n     - {summary}\n"
        for name in namespaces
        for title, summary in [NAMESPACES.get(name, (name, ""))]
    )
    return (
        f"{titled('API reference')}\n"
        "Every public name, with its parameters, what it returns, and an example.  What is not "
        "here is private and may change; :doc:`../versions` says what public means.\n\n"
        ".. list-table::\n   :class: api-namespaces\n   :widths: 20 25 55\n\n"
        f"{rows}\n"
        ".. toctree::\n   :hidden:\n\n" + "".join(f"   {name}\n" for name in namespaces)
    )


def write_pages(app, config):
    """Write what has changed, so that a second build is quick."""
    folder = Path(app.srcdir, "api")
    (folder / "generated").mkdir(parents=True, exist_ok=True)
    paths = all_paths()
    found = dict.fromkeys(paths.values())
    namespaces = [name for name in NAMESPACES if name in found]
    namespaces += [name for name in found if name not in NAMESPACES]
    texts = {"index": index_page(namespaces)}
    for namespace in namespaces:
        own = [path for path, name in paths.items() if name == namespace]
        texts[namespace] = namespace_page(namespace, own)
        texts |= {f"generated/{path}": alias_page(path) for path in own if is_alias(path)}
    for name, text in texts.items():
        file = folder / f"{name}.rst"
        if not file.exists() or file.read_text() != text:
            file.write_text(text)
    for file in folder.glob("generated/*.rst"):
        if file.stem not in paths:  # of an earlier build
            file.unlink()
    config.autosummary_generate = [f"api/{name}.rst" for name in namespaces]
    PUBLIC_NAMES.update({path.rpartition(".")[2]: path for path in paths})


def link_names(app, doctree):
    """Turn public names in back quotes into links."""
    of_others = app.env.docname.startswith("coming-from/")  # their ChainCRF is not ours
    for literal in list(doctree.findall(nodes.literal)):
        if of_others and not literal.astext().startswith("ff."):
            continue
        text = literal.astext().removesuffix("()").removeprefix("ff.")
        name = text.rpartition(".")[2]
        path = PUBLIC_NAMES.get(name)
        if path is None or text not in (name, path) or not _may_hold_link(literal):
            continue
        link = addnodes.pending_xref(
            "", refdomain="py", reftype="obj", reftarget=path, refexplicit=True
        )
        link["refdoc"] = app.env.docname
        literal.replace_self(link)
        link += literal


def _may_hold_link(node):
    parent = node.parent
    while parent is not None:
        if isinstance(parent, (nodes.reference, nodes.title, addnodes.pending_xref)):
            return False
        parent = parent.parent
    return True


def resolve_name(app, env, node, contnode):
    """A public name by where it is defined, as in signatures; other types stay without a link."""
    if node.get("refdomain") != "py":
        return None
    target = node["reftarget"]
    path = PUBLIC_NAMES.get(target.rpartition(".")[2])
    if path is not None and path != target:
        domain = env.domains["py"]
        return domain.resolve_xref(env, node["refdoc"], app.builder, "obj", path, node, contnode)
    return contnode if node["reftype"] in ("class", "data", "obj", "exc") else None


def plain_aliases(app, what, name, obj, options, signature, returns):
    """Types that are shown by their name, also inside a union."""
    return tuple(
        text and re.sub(r"TypeAliasForwardRef\('(\w+)'\)", r"\1", text)
        for text in (signature, returns)
    )


def skip_member(app, what, name, obj, skip, options):
    """Leave out what scikit-learn adds to every estimator and documents itself."""
    of_sklearn = name == "get_metadata_routing" or (
        name.startswith("set_") and name.endswith("_request")
    )
    return True if of_sklearn else None


def setup(app):
    """Connect what is above."""
    app.connect("config-inited", write_pages)  # before Sphinx looks for pages
    app.connect("doctree-read", link_names)
    app.connect("missing-reference", resolve_name)
    app.connect("autodoc-process-signature", plain_aliases)
    app.connect("autodoc-skip-member", skip_member)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
