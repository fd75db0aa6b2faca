"""A rank of `hvd.run`: `python -m hvd.run_rank FOLDER` calls the function in FOLDER, and puts its result there."""

import os
import pickle
import sys

from hvd.launch import function_pickle

if __name__ == "__main__":
    folder = sys.argv[1]
    rank = os.environ["RANK"]  # before the function, which may change it
    with open(os.path.join(folder, "function"), "rb") as file:
        sys.path[:] = pickle.load(file)
        func, args, kwargs = pickle.load(file)
    result = func(*args, **kwargs)
    with open(os.path.join(folder, f"result.{rank}"), "wb") as file:
        function_pickle.dump(result, file)
