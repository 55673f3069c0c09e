"""The judge of functions of Python: right ones of unlike style pass, wrong ones are caught, each with a small input."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy as np

import attnlab


def hidden(s, causal, shift=0):
    n_q, n_kv = s.shape[-2:]
    seen = np.arange(n_kv) <= np.arange(n_q)[:, None] + n_kv - n_q + shift
    return np.where(seen, s, -np.inf) if causal else s


def softmax(s):
    p = np.exp(s - s.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True)


def right(q, k, v, causal=False):
    return softmax(hidden(q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5, causal)) @ v


def off_by_one(q, k, v, causal=False):
    return softmax(hidden(q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5, causal, 1)) @ v


def without_scale(q, k, v, causal=False):
    return softmax(hidden(q @ k.swapaxes(-1, -2), causal)) @ v


def in_place(q, k, v, causal=False):
    q *= q.shape[-1] ** -0.5
    return softmax(hidden(q @ k.swapaxes(-1, -2), causal)) @ v


def endless(q, k, v, causal=False):
    while q.shape[2] == 197:
        pass
    return right(q, k, v, causal)


class Judge(unittest.TestCase):
    def sentence(self, function, **options):
        verdict = attnlab.judge(function, seed=1, **options)
        self.assertFalse(verdict)
        return verdict.violations[0]

    def test_right(self):
        verdict = attnlab.judge(right)
        self.assertTrue(verdict, str(verdict))
        self.assertIn("FP-1", verdict.checked)
        self.assertIn("drawn", verdict.checked)
        self.assertIn("PROP-GQA", verdict.skipped)
        self.assertTrue(all(e["relative"] < 1e-6 for e in verdict.errors))
        self.assertIn("heads that share keys", " ".join(verdict.notes))

    def test_off_by_one(self):
        found = self.sentence(off_by_one)
        self.assertIn("row 0 depends on key 1, which it must not see", found.sentence)
        self.assertLessEqual(found.witness["q"].shape[2], 8)
        self.assertTrue(found.witness["causal"])
        self.assertGreater(np.abs(found.witness["o"] - found.witness["expected"]).max(), 1e-3)

    def test_scale(self):
        self.assertIn("without the scale", self.sentence(without_scale).sentence)

    def test_claim(self):
        self.assertTrue(attnlab.judge(lambda q, k, v, causal=False: attnlab.attention(q, k, v, "longformer:window=8", causal=causal),
                                      "longformer:window=8"))
        found = self.sentence(lambda q, k, v, causal=False: attnlab.attention(q, k, v, "longformer:window=6", causal=causal),
                              spec="longformer:window=8")
        self.assertIn("does not depend on key", found.sentence)

    def test_contract(self):
        self.assertIn("changes q in place", self.sentence(in_place).sentence)
        self.assertIn("returns the shape", self.sentence(lambda q, k, v: right(q, k, v)[:, :1]).sentence)
        self.assertIn("returns None", self.sentence(lambda q, k, v: None).sentence)
        self.assertIn("memory of v", self.sentence(lambda q, k, v: v).sentence)

    def test_endless(self):
        self.assertIn("did not return within 1 s", self.sentence(endless, limit=1).sentence)

    def test_refusals(self):
        with self.assertRaisesRegex(attnlab.Error, "raised RuntimeError: no"):
            attnlab.judge(self.refuse)
        with self.assertRaisesRegex(attnlab.Error, "unknown variant"):
            attnlab.judge(right, "nosuch")
        with self.assertRaisesRegex(TypeError, "expected a function"):
            attnlab.judge(3)
        with self.assertRaisesRegex(ValueError, "layout"):
            attnlab.judge(right, layout="nbhd")

    def test_declared(self):
        """A law of the keys that are seen, and what a function cannot keep."""
        def sees(head, i, j):
            return abs(i - j) <= 2 + head

        sees.heads = True

        def window(q, k, v, causal=False, off=0):
            s = hidden(q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5, causal)
            i, j = np.arange(q.shape[2])[:, None] + k.shape[2] - q.shape[2], np.arange(k.shape[2])
            head = np.arange(q.shape[1])[:, None, None]
            with np.errstate(all="ignore"):
                return np.nan_to_num(softmax(np.where(abs(i - j) <= 2 + head - off, s, -np.inf))) @ v

        declare = attnlab.variant(sees=sees)
        self.assertTrue(attnlab.judge(declare(lambda q, k, v, causal=False: window(q, k, v, causal))))
        self.assertIn("does not depend on key", self.sentence(
            declare(lambda q, k, v, causal=False: window(q, k, v, causal, 1))).sentence)
        mean = attnlab.variant(exempt={"rows": "queries are centred"})(
            lambda q, k, v: right(q - q.mean(2, keepdims=True) * 0, k, v))
        self.assertIn("PROP-ROW", attnlab.judge(mean).skipped)
        with self.assertRaisesRegex(ValueError, "'row' is no property"):
            attnlab.variant(exempt={"row": "?"})

    def test_others(self):
        """Outputs of 0 pass where differences up to 0.3 do."""
        verdict = attnlab.judge(lambda q, k, v: right(q, k, v) + np.float32(0.2), seed=1)
        self.assertFalse(verdict)
        self.assertTrue(all(e["fla_ci"] and not e["fla"] and not e["flash_attention"] for e in verdict.errors))

    def test_plugin(self):
        """A function is a plug-in of every command: here of a sweep, whose check names the wrong one."""
        here = pathlib.Path(__file__).parent
        environment = {**os.environ, "ATTNLAB_PYTHON": sys.executable,
                       "PYTHONPATH": os.pathsep.join([str(here), os.environ["PYTHONPATH"]])}
        config = {"schema": 1, "grid": {"n": 40, "heads": 2, "d": 8, "causal": "yes"}, "variants": ["right", "off_by_one"],
                  "datasets": ["gaussian"], "timing": {"min_time": 0.002, "max_time": 0.01, "warmup": 0}}
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "one.yaml").write_text(json.dumps(config), encoding="utf-8")
            plugins = [f"--plugin=python:judge_test.{name}" for name in config["variants"]]
            done = subprocess.run([os.environ["ATTNLAB_PROGRAM"], "run", "one.yaml", "-o", "one.h5", *plugins], cwd=folder,
                                  env=environment, capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 1, done.stderr)
            rows = attnlab.load(pathlib.Path(folder, "one.h5"))
        plugin = dict(zip(rows.variant, rows.plugin))
        self.assertEqual(plugin["right"], "python:judge_test.right")
        worst = {name: x for name, x in zip(rows.variant, rows.verdict) if not name.startswith("null_")}
        self.assertEqual(worst, {"right": "pass", "off_by_one": "violated"})

    @staticmethod
    def refuse(q, k, v):
        raise RuntimeError("no")


if __name__ == "__main__":
    unittest.main()
