"""Import the installed wheel in an environment that has only the core dependencies.

Run as a script by ``make wheel``, with the interpreter of that environment.
"""

import importlib
import importlib.metadata
import importlib.util
import pkgutil
import sys
from pathlib import Path

# Modules that are of no use without their extra.
NEED_AN_EXTRA = {"botorch_res.acquisition.ax"}
EXTRAS = ("ax", "dask", "distributed", "emcee", "matplotlib", "pymunk", "rich", "typer")

here = Path(__file__).resolve().parent
sys.path[:] = [path for path in sys.path if Path(path or ".").resolve() != here]

found = [name for name in EXTRAS if importlib.util.find_spec(name)]
if found:
    sys.exit(f"The environment is not bare: {', '.join(found)} installed.")

package = importlib.import_module("botorch_res")
location = Path(package.__file__).resolve()
if here.parent / "botorch_res" in location.parents:
    sys.exit(f"Imported the source tree, not the wheel: {location}")
if not (location.parent / "py.typed").exists():
    sys.exit("The wheel has no py.typed.")

names = [
    module.name
    for module in pkgutil.walk_packages(package.__path__, prefix="botorch_res.")
]
for name in set(names) - NEED_AN_EXTRA:
    importlib.import_module(name)
version = importlib.metadata.version("botorch_res")
sys.stdout.write(f"botorch_res {version}: {len(names)} modules, imported bare.\n")
