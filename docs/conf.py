"""Settings of the documentation site: `make docs` builds it into docs/_build, and loads nothing from elsewhere."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

from docutils.nodes import SkipNode
from latex2mathml.converter import convert

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "agents")]
os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[1:3])  # of the kernels that run the pages' cells

import environment_pages  # noqa: E402
from playground import build as playground  # noqa: E402

project = "routing-gym"
author = "The routing-gym developers"
copyright = author  # noqa: A001
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build", "playground"]
html_theme = "furo"
html_title = "routing-gym"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
html_show_copyright = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#4453e0", "color-brand-content": "#4453e0"},
    "dark_css_variables": {"color-brand-primary": "#98a4ff", "color-brand-content": "#98a4ff"},
}
pygments_style, pygments_dark_style = "friendly", "native"
default_role = "code"

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 120
if only := os.environ.get("RUN_CELLS_OF"):  # tests/site names one page: tests/test_docs.py runs the Python of all
    nb_execution_excludepatterns = [path.name for path in HERE.glob("*.md") if path.stem != only]
    suppress_warnings = ["myst-nb.lexer"]  # the kernel names the language of a page that it runs
nb_merge_streams = True

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_mock_imports = [
    name
    for name in ("jax", "ray", "tianshou", "torchrl", "tensordict", "pettingzoo", "stable_baselines3", "sb3_contrib")
    if find_spec(name) is None
]
napoleon_use_ivar = True


def link_into_the_site(app, name, source):
    """Let links to CONTRIBUTING.md, which is a page here, stay in the site."""
    source[0] = source[0].replace("](../CONTRIBUTING.md", "](contributing.md")


def keep_tables(app, what, name, obj, options, lines):
    """Show the Markdown tables of docstrings as they stand, which reStructuredText would take for something else."""
    shown = []
    for line in lines:
        starts = line.lstrip().startswith("|")
        if starts and not (shown and shown[-1].lstrip().startswith("|")):
            shown += ["", "::", ""]
        elif not starts and shown and shown[-1].lstrip().startswith("|"):
            shown.append("")
        shown.append(f"    {line}" if starts else line)
    lines[:] = shown


def write_pages(app):
    """Write what is generated: the pages of the environments, their animations, and the playground's weights."""
    environment_pages.main(HERE / "environments")


def copy_playground(app, error):
    """Put the playground beside the pages, with its weights."""
    if error is None and app.builder.format == "html":
        playground.publish(Path(app.outdir) / "playground")


def visit_math(self, node):
    """Write a formula as MathML, which browsers draw themselves."""
    self.body.append(convert(node.astext()))
    raise SkipNode


def visit_math_block(self, node):
    """Write a formula that stands alone as MathML."""
    self.body.append(f'<div class="math">{convert(node.astext(), display="block")}</div>')
    raise SkipNode


def setup(app):
    """Connect what is above."""
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math_block, None))
    app.connect("builder-inited", write_pages)
    app.connect("autodoc-process-docstring", keep_tables)
    app.connect("source-read", link_into_the_site)
    app.connect("build-finished", copy_playground)


html_math_renderer = "mathml"
