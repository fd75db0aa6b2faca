"""Version and dependencies of the wheel, for pyproject.toml. As a program, prints the folder of torch, for CMake.

torch has no stable ABI, so a wheel needs the minor version of torch with which it was built.
"""

import pathlib
import re
import subprocess
import sys

_ROOT = pathlib.Path(__file__).resolve().parent.parent
_QUESTION = """
import importlib.metadata, importlib.util
print(importlib.util.find_spec("torch").submodule_search_locations[0], importlib.metadata.version("torch"), sep="\\n")
"""


def installed_torch():
    """The folder and the version of the torch that this Python has.

    pip builds a wheel in an environment without the installed packages, which it makes with variables; -E ignores them.
    The folder of packages of the user counts, where `pip install --user` puts torch.
    """
    answer = subprocess.run([sys.executable, "-E", "-c", _QUESTION], cwd=_ROOT, capture_output=True,
                            text=True, check=False)
    if answer.returncode:
        raise SystemExit(f"hvd is built with the torch of {sys.executable}, which has none: install torch first")
    folder, version = answer.stdout.splitlines()
    if tuple(map(int, _minor(version).split("."))) < (2, 8):  # as cmake/HvdDependencies.cmake
        raise SystemExit(f"the Python package of hvd needs torch 2.8 or newer, and {sys.executable} has {version}")
    return folder, version


def _minor(version):
    return ".".join(version.split(".")[:2])


def dynamic_metadata(settings, project):
    torch = _minor(installed_torch()[1])
    version = re.search(r"^  VERSION ([0-9.]+)$", (_ROOT / "CMakeLists.txt").read_text(), re.MULTILINE)[1]
    return {"version": f"{version}+torch{torch}", "dependencies": [f"torch=={torch}.*"]}


if __name__ == "__main__":
    print(installed_torch()[0])
