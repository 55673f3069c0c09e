"""Python in README.md and experiments/examples, as they stand there."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import matplotlib.pyplot as plt
import numpy as np

import attnlab
import oracle

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "experiments" / "examples"


def blocks(path, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", path.read_text(), re.S | re.M)


class Examples(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_command(self, *command, **environment):
        done = subprocess.run(command, cwd=self.folder, text=True, capture_output=True, check=False,
                              env={**os.environ, **environment})
        self.assertEqual(done.returncode, 0, f"{command}: {done.stdout}{done.stderr}")
        return done.stdout

    def test_commands(self):
        for name in "core", "experiments", "data":
            (self.folder / name).symlink_to(ROOT / name)
        bin_folder = self.folder / "bin"
        bin_folder.mkdir()
        (bin_folder / "python3").symlink_to(sys.executable)
        path = f"{bin_folder}:{pathlib.Path(os.environ['ATTNLAB_PROGRAM']).parent}:{os.environ['PATH']}"
        said = [self.run_command("sh", "-euc", block, PATH=path) for block in blocks(EXAMPLES / "README.md", "sh")]
        self.assertEqual(len(said), 2)
        self.assertRegex(said[0], r"topk:k=64 +\d\.\d\de-0\d +[0-9.]+ ms\n")
        self.assertRegex(said[0], r"tiled +output changed by \d\.\de-0[6-9]")
        self.assertRegex(said[0], r"longformer:window=64 +output changed by \d\.\de-0[1-3]")
        self.assertRegex(said[0], r"by formula +loss 2\.\d+ \.\.\. 0\.\d+\n")
        self.assertRegex(said[0], r"tiled +loss 2\.\d+ \.\.\. 0\.\d+  losses apart by \d\.\de-(0[6-9]|\d\d) ")
        self.assertRegex(said[0], r"longformer:window=16 +loss 2\.\d+ \.\.\. 2\.\d+  losses apart by \d\.\de\+00 ")
        self.assertRegex(said[0], r"\nattention: nothing violated, \d\d hold\n")
        self.assertRegex(said[1], r"strided:stride=4 +\d\.\d\de[-+]0\d +[0-9.]+ ms")
        self.assertGreater((self.folder / "strided.png").stat().st_size, 1000)

    def test_compare_with_tensors_of_ones_own(self):
        q, k, v = (oracle.draw(i, 1, heads, 90, 16) for i, heads in enumerate((4, 2, 2)))
        np.savez(self.folder / "own.npz", q=q, k=k, v=v)
        said = self.run_command(sys.executable, EXAMPLES / "compare.py", "--causal", "own.npz", "streaming:window=16", "linformer")
        exact = oracle.attention(q, k, v, oracle.triangle(90, 90))
        error = np.linalg.norm(attnlab.attention(q, k, v, "streaming:window=16", causal=True) - exact) / np.linalg.norm(exact)
        self.assertIn(f"streaming:window=16                       {error:.2e} ", said)
        self.assertRegex(said, r"linformer +unsupported: .*causal")

    def test_readme(self):
        code = "".join(blocks(ROOT / "README.md", "python"))
        self.assertIn("import attnlab", code)
        (self.folder / "results").mkdir()
        (self.folder / "x.yaml").write_text(
            "schema: 1\ngrid: {n: [128, 256], heads: 4, causal: yes}\nvariants: [tiled, topk: {k: [4, 8]}]\ndatasets:\n"
            "  - captured: {file: layer0.h5}\n  - captured: {file: layer3.h5}\ntiming: {min_time: 0.001, max_time: 0.005}\n")
        for layer in "0", "3":
            self.run_command(os.environ["ATTNLAB_PROGRAM"], "capture", ROOT / "data/bytelm", "--text", ROOT / "LICENSE",
                             "--layer", layer, "--n", "256", "-o", f"layer{layer}.h5")
        self.run_command(os.environ["ATTNLAB_PROGRAM"], "run", "x.yaml", "-o", "results/default.h5", "--quiet")
        before = os.getcwd()
        self.addCleanup(os.chdir, before)
        os.chdir(self.folder)
        q, k, v = (oracle.draw(i, 1, 4, 256, 64) for i in range(3))
        names = {"q": q, "k": k, "v": v, "my_attention": attnlab.attention}
        exec(compile(code, "README.md", "exec"), names)
        plt.close("all")
        self.assertTrue(names["verdict"], str(names["verdict"]))
        np.testing.assert_array_equal(names["o"], attnlab.attention(q, k, v, "longformer:window=256", causal=True))
        for picture in re.findall(r"savefig\(\"([^\"]*)\"", code):
            self.assertGreater((self.folder / picture).stat().st_size, 1000)
