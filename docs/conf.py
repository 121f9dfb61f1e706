"""How Sphinx makes the site of these pages (``make docs``): offline, warnings are errors."""

import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS / "_extensions"))

with (DOCS.parent / "pyproject.toml").open("rb") as file:
    _project = tomllib.load(file)["project"]

project = "fieldfit"
author = "The fieldfit developers"
copyright = f"{author}. Licence: BSD-3-Clause"  # noqa: A001
release = version = _project["version"]

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    # ours
    "api_pages",
    "formulas",
    "repository_links",
]
# pages on a code host begin with index.md; the site begins with index.rst, and guide.rst includes
# index.md
exclude_patterns = ["index.md", "coming-from/README.md", "_*", "**.ipynb", "gallery/*.py"]
templates_path = ["_templates"]
nitpicky = True
suppress_warnings = ["config.cache"]  # the gallery's order is a function
maximum_signature_line_length = 80

# -- Markdown -----------------------------------------------------------------------------

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4

# -- docstrings ---------------------------------------------------------------------------

autodoc_member_order = "bysource"
autodoc_mock_imports = [] if find_spec("torch") else ["torch"]
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
# types that are shown by their name
_SHOWN = (
    "ArrayLike BoolArray Bound Capacities Encoding Evidence FloatArray IndexArray IntArray Kind"
)
_SHOWN += " LabelArray LongArray NDArray PathName Progress Source"
autodoc_type_aliases = {name: name for name in _SHOWN.split()}
autosummary_ignore_module_all = False
default_role = "code"  # api_pages turns public names into links
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

# -- gallery ------------------------------------------------------------------------------

sphinx_gallery_conf = {
    "abort_on_example_error": True,
    "doc_module": ("fieldfit",),
    "backreferences_dir": "gallery/backreferences",
    "download_all_examples": False,
    "examples_dirs": "../examples",
    "filename_pattern": r"\.py$",
    "gallery_dirs": "gallery",
    "image_scrapers": ("matplotlib",),
    "min_reported_time": 1e9,  # times are of this machine
    "remove_config_comments": True,
    "show_memory": False,
    "show_signature": False,
    "write_computation_times": False,
    "within_subsection_order": "gallery_order.GalleryOrder",
}

# -- pages --------------------------------------------------------------------------------

html_theme = "pydata_sphinx_theme"
html_title = "fieldfit"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_math_renderer = "formulas"
html_sidebars = {"index": [], "api/index": ["sidebar-nav-bs"]}
html_theme_options = {
    "footer_start": ["copyright"],
    "footer_end": [],
    "header_links_before_dropdown": 6,
    "navbar_align": "left",
    "secondary_sidebar_items": ["page-toc"],
    "show_prev_next": True,
    "show_nav_level": 1,
    "show_toc_level": 1,
    "navigation_depth": 2,
    "collapse_navigation": True,
    "pygments_light_style": "tango",
    "pygments_dark_style": "monokai",
    "logo": {"text": "fieldfit"},
}
