#!/usr/bin/python3
"""run.py PART BUILD - the tests of one part of the Python module, PART_test.py, against a build; a warning of the module
is an error. Exit code 77: a package that the part needs is not installed; with ATTN_TESTS_PYTHON=required, as continuous
integration has it, that is a failure. A part of which no test ran has failed."""
import importlib.util
import os
import pathlib
import sys
import unittest
import warnings

NEEDS = {"attention": ["numpy"], "cache": ["numpy"], "store": ["numpy"], "torch": ["numpy", "torch"],
         "gradients": ["numpy"], "recurrence_gradients": ["numpy"], "training": ["numpy", "torch"],
         "models": ["numpy", "torch", "transformers", "tokenizers", "accelerate", "sentencepiece"],
         "architectures": ["numpy", "torch", "transformers", "gguf", "h5py"],
         "real": ["numpy", "torch", "transformers", "tokenizers", "gguf", "h5py"], "tokens": ["tokenizers", "sentencepiece"], "judge": ["numpy", "pandas", "h5py"], "results": ["numpy", "pandas", "h5py", "matplotlib"],
         "examples": ["numpy", "torch", "pandas", "h5py", "matplotlib"]}


def main():
    part, build = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()
    here = pathlib.Path(__file__).resolve().parent
    missing = [name for name in NEEDS[part] if importlib.util.find_spec(name) is None]
    if missing:
        required = os.environ.get("ATTN_TESTS_PYTHON") == "required"
        print(f"run.py: the part '{part}' of the Python module is NOT TESTED: {sys.executable} has no "
              f"{', '.join(missing)} (cmake/bootstrap.sh python)")
        return 1 if required else 77
    os.environ["ATTNLAB_LIBRARY"] = str(build / "core" / "libattn.so")
    os.environ["ATTNLAB_PROGRAM"] = str(build / "experiments" / "attnlab")
    os.environ["ATTNLAB_BUILD"] = str(build)
    os.environ["PYTHONPATH"] = str(here.parents[1] / "core" / "python")
    os.environ["MPLBACKEND"] = "Agg"
    sys.path[:0] = [os.environ["PYTHONPATH"]]
    warnings.filterwarnings("error", module="attnlab")
    tests = unittest.defaultTestLoader.loadTestsFromName(f"{part}_test")
    result = unittest.TextTestRunner(verbosity=2, warnings=None).run(tests)
    ran = result.testsRun - len(result.skipped)
    print(f"run.py: {ran} tests of the part '{part}'")
    return 0 if result.wasSuccessful() and ran > 0 else 1


sys.exit(main())
