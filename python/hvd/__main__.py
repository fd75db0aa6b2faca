"""`python -m hvd --cmake-prefix-path` says where CMake finds hvd. The programs of the wheel start here too."""

import argparse
import importlib.util
import os
import pathlib
import sys

from hvd.build import TORCH_VERSION, VERSION

_FOLDER = pathlib.Path(__file__).resolve().parent


def run_program():
    """Becomes the program of the same name in the package."""
    program = _FOLDER / "bin" / pathlib.Path(sys.argv[0]).name
    os.execv(program, [str(program), *sys.argv[1:]])


def main():
    parser = argparse.ArgumentParser(prog="python -m hvd")
    parser.add_argument("--version", action="version",
                        version=f"hvd {VERSION}, built with torch {TORCH_VERSION}")
    parser.add_argument("--cmake-prefix-path", action="store_true", required=True,
                        help="print the folders of hvd and torch, for CMAKE_PREFIX_PATH")
    parser.parse_args()
    torch = importlib.util.find_spec("torch")  # may be in another folder of packages
    print(_FOLDER, *(torch.submodule_search_locations if torch else ()), sep=";")


if __name__ == "__main__":
    main()
