"""The README and the documentation: their examples run, what they quote is right."""

import ast
import doctest
import importlib
import inspect
import pkgutil
import re
import zlib
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch
from botorch.acquisition.input_constructors import get_acqf_input_constructor
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf
from botorch.utils.transforms import standardize, unnormalize
from typer.main import get_command

import botorch_res
from botorch_res import RobustDomain, RobustOptimizer, qRobustEntropySearch
from botorch_res.cli import build_app
from botorch_res.models import DefaultGP
from botorch_res.study.tasks import built_in_problems, read_domain
from botorch_res.test_functions import RobustBranin

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = sorted((ROOT / "docs").rglob("*.md"))


@cache
def read(path):
    return path.read_text(encoding="utf-8")


def blocks_of(path, language):
    pattern = rf"^```{language}\n(.*?)^```"
    return re.findall(pattern, read(path), flags=re.DOTALL | re.MULTILINE)


def examples():
    """Each block of the README stands alone; those of a page build on one another."""
    for number, block in enumerate(blocks_of(README, "python")):
        yield pytest.param(block, id=f"README-{number}")
    for page in PAGES:
        blocks = blocks_of(page, "python")
        if blocks:
            name = page.relative_to(ROOT / "docs").as_posix()
            yield pytest.param("\n".join(blocks), id=name)


@pytest.mark.parametrize("code", list(examples()))
def test_example_runs(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "example", "exec"), {"__name__": "__main__"})


def test_there_are_examples():
    assert blocks_of(README, "python")
    assert blocks_of(ROOT / "docs" / "getting_started.md", "python")


@pytest.mark.parametrize("path", [README, ROOT / "CONTRIBUTING.md"], ids=str)
def test_make_targets_exist(path):
    makefile = read(ROOT / "Makefile")
    targets = set(re.findall(r"^([a-z]+):", makefile, flags=re.MULTILINE))
    told = set(re.findall(r"^make ([a-z]+)", read(path), flags=re.MULTILINE))
    assert "test" in told
    assert told <= targets


def test_the_two_commands_are_told_and_run():
    assert {"demo", "test"} <= set(re.findall(r"^make (\w+)", read(README), re.M))
    assert "\nmake test\n" in read(ROOT / ".ci" / "run")


def test_links_and_pictures_of_the_readme_exist():
    links = re.findall(r"\]\((?!https?://|#)([^)#]+)", read(README))
    assert links
    for link in links:
        assert (ROOT / link).exists(), link


def public_objects():
    """What the packages export, by canonical names."""
    packages = [""] + [f".{m.name}" for m in pkgutil.iter_modules(botorch_res.__path__)]
    modules = [importlib.import_module(f"botorch_res{package}") for package in packages]
    found = [getattr(m, name) for m in modules for name in getattr(m, "__all__", ())]
    return {f"{item.__module__}.{item.__qualname__}": item for item in found}


def docstring_examples():
    for name, item in public_objects().items():
        texts = [inspect.getdoc(item)]
        if inspect.isclass(item):
            texts.append(inspect.getdoc(item.__init__))
        examples = doctest.DocTestParser().get_examples(
            "\n\n".join(filter(None, texts))
        )
        if examples:
            yield pytest.param(examples, id=name)


@pytest.fixture(scope="module")
def names_in_examples():
    """What docstrings take for granted."""
    unit_cube = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.double)
    domain = RobustDomain(unit_cube, uncontrollable=[1])
    train_X = domain.sample(6, seed=0)
    branin = RobustBranin()
    train_Y = standardize(branin(unnormalize(train_X, branin.bounds)).unsqueeze(-1))
    optimizer = RobustOptimizer(domain, maximize=False, seed=0)
    for point, value in zip(train_X, train_Y, strict=True):
        optimizer.add(point, value)
    model = DefaultGP()(train_X, train_Y, None, domain.bounds)
    return {
        **{item.__name__: item for item in public_objects().values()},
        "SingleTaskGP": SingleTaskGP,
        "acqf": qRobustEntropySearch(model, domain, num_samples=2, seed=0),
        "bounds": domain.bounds,
        "domain": domain,
        "get_acqf_input_constructor": get_acqf_input_constructor,
        "model": model,
        "optimize_acqf": optimize_acqf,
        "optimizer": optimizer,
        "simulate": lambda friction, force: friction + force,
        "torch": torch,
        "train_X": train_X,
        "train_Y": train_Y,
    }


# BoTorch's search warns when it ends at a kink of the acquisition function.
@pytest.mark.filterwarnings("ignore:Optimization failed:RuntimeWarning")
@pytest.mark.parametrize("examples", list(docstring_examples()))
def test_example_of_docstring_runs(
    examples, names_in_examples, tmp_path, monkeypatch, request
):
    monkeypatch.chdir(tmp_path)
    names = dict(names_in_examples)
    if "replicates" in request.node.name:
        X, Y = (names[name].expand(2, -1, -1) for name in ("train_X", "train_Y"))
        names |= {"model": DefaultGP()(X, Y, None, names["bounds"]), "seeds": [0, 1]}
    for example in examples:
        if example.want:
            assert repr(eval(example.source, names)) == example.want.strip()
        else:
            exec(example.source, names)


# The site.


class Elements(HTMLParser):
    """What a page loads, and the text of its paragraphs."""

    def __init__(self):
        super().__init__()
        self.loaded = []
        self.text = []

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if tag in ("script", "img", "iframe", "source"):
            self.loaded.append(attributes.get("src"))
        if tag == "link" and attributes.get("rel") != "canonical":
            self.loaded.append(attributes.get("href"))

    def handle_data(self, data):
        self.text.append(data)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built in strict mode: any warning is an error."""
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    folder = tmp_path_factory.mktemp("site")
    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder), strict=True))
    return folder


@pytest.fixture(scope="module")
def html(site):
    found = {}
    for path in site.rglob("*.html"):
        elements = Elements()
        content = path.read_text(encoding="utf-8")
        elements.feed(re.sub(r'<span class="doc-section-title">[^<]*', "", content))
        found[path] = elements
    return found


def test_every_page_and_notebook_is_in_the_site(site):
    sources = [*PAGES, ROOT / "CHANGELOG.md", *(ROOT / "benchmarks/results").glob("*")]
    sources += (ROOT / "tutorials").glob("[0-9]*.ipynb")
    for source in sources:
        if source.suffix in (".md", ".ipynb"):
            base = ROOT / "docs" if ROOT / "docs" in source.parents else ROOT
            path = source.relative_to(base).with_suffix(".html")
            assert (site / path).exists(), path


def test_every_public_name_is_in_the_reference(site):
    inventory = (site / "objects.inv").read_bytes().split(b"\n", 4)[4]
    documented = {
        line.split(" ")[0] for line in zlib.decompress(inventory).decode().splitlines()
    }
    public = set(public_objects())
    assert len(public) > 50
    assert public <= documented, public - documented


def test_nothing_is_loaded_from_elsewhere(site, html):
    assert html
    for path, elements in html.items():
        for source in elements.loaded:
            assert source is None or not re.match(r"(https?:)?//", source), path
    for style in site.rglob("*.css"):
        content = style.read_text(encoding="utf-8")
        assert not re.search(r"(@import|url\()\s*['\"]?(https?:)?//", content), style


def test_no_markup_is_left_over(html):
    """Sections of docstrings, Sphinx's marks and formulas are all rendered."""
    left_over = re.compile(
        r"^\s*(Args|Returns|Raises|Attributes|Examples?|Yields):|\.\. \[|\]_\b"
        r"|``|:(class|meth|func):`|\\\(|\\\[|--8<--",
        flags=re.MULTILINE,
    )
    for path, elements in html.items():
        text = "\n".join(elements.text)
        found = left_over.search(text)
        assert not found, (path.name, text[found.start() : found.start() + 200])
        # An example that is not taken for code is a quotation of quotations.
        content = path.read_text(encoding="utf-8")
        assert not re.search(r"<blockquote>\s*<blockquote>", content), path


# What the pages quote.


@cache
def templates():
    """The fixed parts of all texts in the package; ``None`` is what is filled in."""
    found = []
    for path in (ROOT / "botorch_res").rglob("*.py"):
        for node in ast.walk(ast.parse(read(path))):
            if isinstance(node, ast.JoinedStr):
                parts = [getattr(part, "value", None) for part in node.values]
            else:
                parts = [getattr(node, "value", None)]
            fixed = [part if isinstance(part, str) else None for part in parts]
            if sum(len(part) for part in fixed if part) >= 20:
                found.append(fixed)
    return found


def stands_in_the_code(message):
    return any(
        re.fullmatch(
            "".join(".+" if part is None else re.escape(part) for part in parts),
            message,
            flags=re.DOTALL,
        )
        for parts in templates()
        if all(part is None or part in message for part in parts)
    )


QUOTED = blocks_of(ROOT / "docs" / "errors.md", "text")


def test_there_are_quoted_messages():
    assert len(QUOTED) > 30
    assert not stands_in_the_code("Expected `theta_choices` to be kind.")


@pytest.mark.parametrize("message", QUOTED)
def test_quoted_message_stands_in_the_code(message):
    assert stands_in_the_code(message.strip())


def quotations():
    pattern = r"<!-- from (\S+) -->\n\n(.*?)(?:\n\n|\Z)"
    for page in PAGES:
        for source, text in re.findall(pattern, read(page), flags=re.DOTALL):
            yield pytest.param(source, text, id=f"{page.name}-{text[:30]}")


def numbers(text):
    text = re.sub(r"\]\([^)]*\)", "", text)
    return set(re.findall(r"(?<![\w.])\d+(?:\.\d+)?(?:e-?\d+)?", text))


@pytest.mark.parametrize(("source", "text"), list(quotations()))
def test_quoted_figures_stand_in_the_results(source, text):
    missing = numbers(text) - numbers(read(ROOT / source))
    assert numbers(text)
    assert not missing, f"{sorted(missing)} are not (or no longer) in {source}"


def test_command_line_page_lists_all_options_and_problems():
    page = read(ROOT / "docs" / "command_line.md")
    told = {
        command: set(re.findall(r"`(--[a-z-]+)`", section))
        for command, section in re.findall(
            r"^### (\w+)\n(.*?)(?=^##)", page, flags=re.DOTALL | re.MULTILINE
        )
    }
    commands = get_command(build_app()).commands
    there = {
        name: {option.opts[0] for option in command.params if option.opts[0][0] == "-"}
        for name, command in commands.items()
    }
    assert told == there
    for problem in built_in_problems():
        assert f"`{problem}`" in page


def test_domain_files_can_be_read(tmp_path):
    (content,) = blocks_of(ROOT / "docs" / "command_line.md", "toml")
    path = tmp_path / "press.toml"
    path.write_text(content, encoding="utf-8")
    space, maximize = read_domain(path)
    assert space.x_names == ["friction"]
    assert not maximize
