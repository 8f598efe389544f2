"""What the documentation takes from outside of ``docs/``, and how it is rendered.

- The tutorials' notebooks, the benchmarks' results, the changelog and the contributors'
  guide become pages where they stand.
- LaTeX formulas become MathML, which browsers draw without a script.
- References and examples in docstrings are written as in BoTorch; here they become what
  mkdocstrings understands.
"""

from __future__ import annotations

import re
from functools import partial
from html import unescape
from pathlib import Path
from typing import Any

import griffe
import nbformat
from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from nbconvert import MarkdownExporter

ROOT = Path(__file__).parents[1]


def on_config(config: MkDocsConfig) -> None:
    """List the notebooks and the results in the navigation.

    Args:
        config: The configuration of the site.
    """
    sections = {title: pages for entry in config.nav for title, pages in _items(entry)}
    sections["Tutorials"] += [page_of(notebook) for notebook in notebooks()]
    sections["Benchmarks"] += ["benchmarks/results/RESULTS.md"]
    sections["Benchmarks"] += [uri for uri in results() if uri.endswith(".md")]


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add the pages and pictures from outside of ``docs/``.

    Args:
        files: The files of the site.
        config: The configuration of the site.
    """
    outside = ["CHANGELOG.md", "CONTRIBUTING.md", "benchmarks/README.md", *results()]
    outside.append("tutorials/README.md")
    outside += [f"tutorials/{path.name}" for path in (ROOT / "tutorials").glob("*.png")]
    outside.append("benchmarks/results/RESULTS.md")
    for uri in outside:
        files.append(File(uri, str(ROOT), config.site_dir, config.use_directory_urls))
    for notebook in notebooks():
        text, pictures = markdown_of(notebook)
        uri = page_of(notebook)
        files.append(File.generated(config, uri, content=text))
        for name, content in pictures.items():
            files.append(File.generated(config, f"tutorials/{name}", content=content))


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Let links between the tutorials lead to their pages.

    Args:
        markdown: The content of a page.
        page: The page.

    Returns:
        The content.
    """
    if not page.file.src_uri.startswith("tutorials/"):
        return markdown
    return re.sub(r"\]\((\d\w*)\.ipynb(?:#[^)]*)?\)", r"](\1.md)", markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Replace formulas by MathML.

    Args:
        html: The content of a page.

    Returns:
        The content with MathML in place of LaTeX.
    """
    inline = r'<span class="arithmatex">\\\((.*?)\\\)</span>'
    block = r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>'
    for pattern, display in ((inline, "inline"), (block, "block")):
        html = re.sub(pattern, partial(_mathml, display=display), html, flags=re.DOTALL)
    return html


def _mathml(found: re.Match[str], display: str) -> str:
    """A formula in MathML."""
    latex = unescape(found.group(1))
    # The converter does not know this operator.
    latex = re.sub(r"\\arg\s*\\(min|max)(?![a-z])", r"\\operatorname{arg\1}", latex)
    mathml = convert(latex, display=display)
    if "\\" in mathml:
        raise PluginError(f"Cannot draw the formula {latex}: {mathml}")
    return mathml


def notebooks() -> list[Path]:
    """The tutorials, in the order of their numbers."""
    return sorted((ROOT / "tutorials").glob("[0-9]*.ipynb"))


def page_of(notebook: Path) -> str:
    """The page of a notebook.

    Args:
        notebook: The notebook.

    Returns:
        Its path in the site's sources.
    """
    return f"tutorials/{notebook.stem}.md"


def results() -> list[str]:
    """The results of the benchmarks, with their pictures, without the regret."""
    folder = ROOT / "benchmarks" / "results"
    found = [path for path in folder.glob("*") if path.suffix in (".md", ".png")]
    names = sorted(path.name for path in found if path.name != "RESULTS.md")
    return [f"benchmarks/results/{name}" for name in names]


def markdown_of(notebook: Path) -> tuple[str, dict[str, bytes]]:
    """Turn a notebook with its outputs into Markdown; nothing is executed.

    Args:
        notebook: The notebook.

    Returns:
        The text, and the pictures by their names.
    """
    content = nbformat.read(notebook, as_version=4)
    resources = {"output_files_dir": f"{notebook.stem}_files"}
    text, resources = MarkdownExporter().from_notebook_node(content, resources)
    return text, resources["outputs"]


def _items(entry: Any) -> list[tuple[str, list[Any]]]:
    """The title and the pages of a section of the navigation."""
    return list(entry.items()) if isinstance(entry, dict) else []


class BoTorchDocstrings(griffe.Extension):
    """Reads what BoTorch writes otherwise: ``.. [Key]``, ``[Key]_``, ``Example:``."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of an object.

        Args:
            obj: The object.
        """
        if obj.docstring is None:
            return
        text = re.sub(r"(\[[A-Z]\w+\])_", r"\1", obj.docstring.value)
        for pattern, replacement in (
            (r"^References:\n", "**References**\n\n"),
            (r"^\.\. (\[\w+\])\n", r"- \1\n"),
            (r"^Example:\n", "Examples:\n"),
        ):
            text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
        obj.docstring.value = text
