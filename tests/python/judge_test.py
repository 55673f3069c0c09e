"""The judge of functions of Python: right ones of unlike style pass, wrong ones are caught, each with a small input. All of
them are judged by judge_all.py; here are those that take little time."""
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import numpy as np

import attnlab
from attnlab import judged_draws, judged_splits, judged_sums
from attnlab.claims import Claims
from attnlab.pace import Pace
from attnlab.serve import Function, serve
from plain_attention import attend, hide, scores, softmax
from right_functions import RIGHT
from stateful_functions import RIGHT_STATES, WRONG_STATES
from wrong_calls import CALLS
from wrong_claims import CLAIMS
from wrong_functions import WRONG

WRONG = WRONG | CALLS


def endless(q, k, v, causal=False):
    while q.shape[2] == 197:
        pass
    return attend(q, k, v, causal)


class Judge(unittest.TestCase):
    def sentence(self, function, **options):
        verdict = attnlab.judge(function, seed=1, **options)
        self.assertFalse(verdict)
        return verdict.violations[0]

    def passes(self, one):
        verdict = attnlab.judge(one.function, seed=1, **one.options)
        self.assertTrue(verdict, str(verdict))
        return verdict

    def test_right(self):
        verdict = self.passes(RIGHT["formula"])
        self.assertIn("FP-1", verdict.checked)
        self.assertIn("drawn", verdict.checked)
        self.assertIn("PROP-GQA", verdict.skipped)
        self.assertTrue(all(e["relative"] < 1e-6 for e in verdict.errors))
        self.assertIn("heads that share keys", " ".join(verdict.notes))

    def test_right_of_half(self):
        verdict = self.passes(RIGHT["half_throughout"])
        self.assertIn("judged by the rounding of float16, which it returns", verdict.notes)
        self.assertNotIn("float64", {e["dtype"] for e in verdict.errors})

    def test_right_refusals(self):
        verdict = self.passes(RIGHT["refuses_odd"])
        self.assertEqual(verdict.skipped["PROP-CAUSAL"], "function attention: ValueError: n is odd")
        self.assertRegex(" ".join(verdict.notes), r"refused [1-9]\d* of [1-9]\d* drawn problems: .*n is odd")
        self.passes(RIGHT["refuses_batches"])

    def test_off_by_one(self):
        found = self.sentence(WRONG["sees_next_key"].function)
        self.assertIn("row 0 depends on key 1, which it must not see", found.sentence)
        self.assertLessEqual(found.witness["q"].shape[2], 8)
        self.assertTrue(found.witness["causal"])
        self.assertGreater(np.abs(found.witness["o"] - found.witness["expected"]).max(), 1e-3)

    def test_small(self):
        for name in ("over_queries", "heads_tiled", "layout_guessed", "lengths_of_heads", "output_kept", "block_filled_up",
                     "dropout_on", "stale_rows"):
            with self.subTest(name):
                witness = self.sentence(WRONG[name].function).witness
                self.assertLessEqual(max(witness["q"].shape[2], witness["k"].shape[2]), 8)

    def test_scale(self):
        self.assertIn("without the scale", self.sentence(WRONG["scale_missing"].function).sentence)

    def test_padding(self):
        self.assertRegex(self.sentence(WRONG["padding_attended"].function).sentence, "depends on .*key [0-9]+, which it must not")

    def test_ends_at_length(self):
        """A causal mask that ends at kv_len is judged as what it is, and what is wrong with it is found."""
        self.assertIn("its causal mask ends at kv_len", " ".join(self.passes(RIGHT["ends_at_length"]).notes))
        found = self.sentence(WRONG["ends_at_longest"].function)
        self.assertRegex(found.sentence, "batch = 2.*depends on .*key [0-9]+, which it must not see")

    def test_claim(self):
        self.passes(RIGHT["a_window"])
        self.passes(RIGHT["the_largest"])
        one = CLAIMS["window_one_short"]
        self.assertIn("does not depend on key", self.sentence(one.function, **one.options).sentence)

    def test_contract(self):
        self.assertIn("changes q in place", self.sentence(WRONG["changes_queries"].function).sentence)
        self.assertIn("returns the shape", self.sentence(lambda q, k, v: attend(q, k, v)[:, :1]).sentence)
        self.assertIn("returns None", self.sentence(lambda q, k, v: None).sentence)
        self.assertIn("memory of v", self.sentence(lambda q, k, v: v).sentence)
        self.assertIn("changes kv_len in place", self.sentence(WRONG["changes_lengths"].function).sentence)
        self.assertIn("in the order of their memory", self.sentence(
            lambda q, k, v: attend(*(x.ravel(order="K").reshape(x.shape) for x in (q, k, v)))).sentence)

    def test_sums(self):
        """A log-sum-exp that is returned besides the output."""
        self.assertIn("log-sum-exp", self.passes(RIGHT["by_parts"]).checked)
        wrong = Function(lambda q, k, v: (attend(q, k, v), np.logaddexp2.reduce(scores(q, k), axis=-1)))
        self.assertIn("by the definition", judged_sums.judge(wrong, Claims())[0][0])

    def test_draws(self):
        """The mean of a function's draws, and that a seed repeats them."""
        verdict = self.passes(RIGHT["unbiased_draws"])
        self.assertLessEqual({"unbiased", "PROP-CAUSAL"}, set(verdict.checked))
        self.assertRegex(" ".join(verdict.notes), "of the mean of its draws a factor 1.0[0-9]* would show")
        draw = RIGHT["unbiased_draws"].function
        for wrong, said in ((lambda q, k, v, causal=False, seed=0: draw(q, k, v, causal, seed, 0.98), "of a row's weights is"),
                            (lambda q, k, v, seed=0: draw(q, k[:, :, :-1], v[:, :, :-1], False, seed), "key 31"),
                            (lambda q, k, v, seed=0: draw(q, k, v, False, None), "with the same seed")):
            with self.subTest(said):
                self.assertIn(said, judged_draws.judge(Function(wrong, seed="seed"), Claims(seed="seed", unbiased=True))[0][0])

    def test_states(self):
        """Caches and recurrences in parts: what is right of one is right of all."""
        self.assertIn("split", self.passes(RIGHT_STATES["a_cache"]).checked)
        self.assertIn("row 0 does not depend on key 0", self.sentence(WRONG_STATES["last_key_lost"].function).sentence)
        for name, one in {**WRONG_STATES, **RIGHT_STATES}.items():
            wrong, reason = judged_splits.judge(Function(one.function, state="state"), one.function.attnlab)
            self.assertEqual((len(wrong), reason), (name in WRONG_STATES, None), name)

    def test_endless(self):
        self.assertIn("did not return within 1 s", self.sentence(endless, limit=1).sentence)

    def test_refusals(self):
        with self.assertRaisesRegex(attnlab.Error, "raised RuntimeError: no"):
            attnlab.judge(self.refuse)
        with self.assertRaisesRegex(attnlab.Error, "unknown variant"):
            attnlab.judge(attend, "nosuch")
        with self.assertRaisesRegex(TypeError, "expected a function of q, k and v, got a value of the type int"):
            attnlab.judge(3)
        with self.assertRaisesRegex(ValueError, "layout"):
            attnlab.judge(attend, layout="nbhd")

    def test_declared(self):
        """A law of the keys that are seen, and what a function cannot keep."""
        def sees(head, i, j):
            return abs(i - j) <= 2 + head

        sees.heads = True

        def window(q, k, v, causal=False, off=0):
            s = hide(q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5, causal)
            i, j = np.arange(q.shape[2])[:, None] + k.shape[2] - q.shape[2], np.arange(k.shape[2])
            head = np.arange(q.shape[1])[:, None, None]
            with np.errstate(all="ignore"):
                return np.nan_to_num(softmax(np.where(abs(i - j) <= 2 + head - off, s, -np.inf))) @ v

        declare = attnlab.variant(sees=sees)
        self.assertTrue(attnlab.judge(declare(lambda q, k, v, causal=False: window(q, k, v, causal))))
        self.assertIn("does not depend on key", self.sentence(
            declare(lambda q, k, v, causal=False: window(q, k, v, causal, 1))).sentence)
        mean = attnlab.variant(exempt={"rows": "queries are centred"})(
            lambda q, k, v: attend(q - q.mean(2, keepdims=True) * 0, k, v))
        verdict = attnlab.judge(mean)
        self.assertEqual(verdict.skipped["PROP-ROW"], "queries are centred")
        self.assertIn("note: exempt from rows: queries are centred", str(verdict))
        with self.assertRaisesRegex(ValueError, "expected why 'rows' cannot be kept"):
            attnlab.variant(exempt={"rows": " "})
        with self.assertRaisesRegex(ValueError, "'row' is no property"):
            attnlab.variant(exempt={"row": "?"})

    def test_others(self):
        """Outputs of 0 pass where differences up to 0.3 do."""
        verdict = attnlab.judge(lambda q, k, v: attend(q, k, v) + np.float32(0.2), seed=1)
        self.assertFalse(verdict)
        self.assertTrue(all(e["fla_ci"] and not e["fla"] and not e["flash_attention"] for e in verdict.errors))

    def test_plugin(self):
        """A function is a plug-in of every command: here of a sweep, whose check names the wrong one."""
        config = {"schema": 1, "grid": {"n": 40, "heads": 2, "d": 8, "causal": "yes"}, "variants": ["attend", "sees_next_key"],
                  "datasets": ["gaussian"], "timing": {"min_time": 0.002, "max_time": 0.01, "warmup": 0}}
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "one.yaml").write_text(json.dumps(config), encoding="utf-8")
            plugins = ["--plugin=python:plain_attention.attend", "--plugin=python:wrong_functions.sees_next_key"]
            done = self.program(folder, "run", "one.yaml", "-o", "one.h5", *plugins)
            self.assertEqual(done.returncode, 1, done.stderr)
            rows = attnlab.load(pathlib.Path(folder, "one.h5"))
        plugin = dict(zip(rows.variant, rows.plugin))
        self.assertEqual(plugin["attend"], "python:plain_attention.attend")
        worst = {name: x for name, x in zip(rows.variant, rows.verdict) if not name.startswith("null_")}
        self.assertEqual(worst, {"attend": "pass", "sees_next_key": "violated"})

    def test_named(self):
        """What the program says of a function that is not there, and of what one declares."""
        source = """
import os, attnlab, plain_attention
three = 3
dies = lambda q, k, v: os._exit(7)
attend = attnlab.variant(exempt={"rows": "rows share a half, and more"})(plain_attention.attend)
attend.__name__ = "full"
"""
        cases = {"python:nosuch.f": "it does not load: ModuleNotFoundError: No module named 'nosuch'", "python:os.nosuch": "has no attribute 'nosuch'",
                 "python:mine.three": "got a value of the type int", "python:mine": "expected python:MODULE.FUNCTION",
                 "python:mine.dies": "without an answer (exit code 7)",
                 "command:./nosuch": "(exit code 127: there is no such command)",
                 "command:sh -c 'echo stays; while :; do sleep 1; done'": "got 'stays'"}
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "mine.py").write_text(source, encoding="utf-8")
            for operand, said in cases.items():
                self.assertRegex(self.program(folder, "test", operand).stderr, f"attnlab test: {re.escape(operand)}: .*{re.escape(said)}\n$")
            self.assertIn("cannot import attnlab", self.program(folder, "test", "python:mine.attend", PYTHONPATH="").stderr)
            for arguments in ("test", "--problems=fixed", "python:mine.attend"), ("describe", "--plugin=python:mine.attend", "full_"):
                self.assertIn("rows share a half, and more", " ".join(self.program(folder, *arguments).stdout.split()))

    @staticmethod
    def program(folder, *arguments, **variables):
        path = f"{pathlib.Path(__file__).parent}:{os.environ['PYTHONPATH']}"
        environment = {**os.environ, "ATTNLAB_PYTHON": sys.executable, "PYTHONPATH": path, **variables}
        return subprocess.run([os.environ["ATTNLAB_PROGRAM"], *arguments], cwd=folder, env=environment, capture_output=True,
                              text=True, check=False)

    @staticmethod
    def refuse(q, k, v):
        raise RuntimeError("no")


class Taken(unittest.TestCase):
    """What a function is found to take."""

    def taken(self, name):
        one = RIGHT[name]
        return Function(one.function, causal=one.options.get("causal")).takes()

    def test_masks(self):
        self.assertEqual(self.taken("causal_or_nothing")[:2], ["f32", "causal"])
        self.assertEqual(self.taken("never_causal")[:2], ["f32", "full"])
        self.assertNotIn("causal", self.taken("never_causal"))
        self.assertIn("last", self.taken("formula"))
        self.assertNotIn("last", self.taken("first_key_first"))

    def test_lengths(self):
        self.assertIn("empty", self.taken("padded_keys"))
        self.assertIn("kv_len", self.taken("padded_keys_added"))
        self.assertNotIn("empty", self.taken("padded_keys_added"))
        self.assertIn("empty", Function(WRONG["empty_rows"].function).takes())
        for name in "padded_keys", "padded_keys_added", "ends_at_length":
            one = Function(RIGHT[name].function)
            one.takes()
            self.assertEqual(one.ends_at_length, name == "ends_at_length")

    def test_types(self):
        self.assertIn("f16", self.taken("half_throughout"))
        self.assertNotIn("f64", self.taken("always_single"))
        self.assertIn("f64", self.taken("always_double"))

    def test_scales(self):
        for name in "named_otherwise", "masked_before_scale":
            one = Function(RIGHT[name].function)
            self.assertIn("scale", one.takes())
            self.assertEqual(one.above_0, name == "masked_before_scale")

    def test_keywords(self):
        self.assertEqual(Function(RIGHT["any_arguments"].function).keywords, {"causal": "causal"})
        other = Function(lambda *tensors, **options: attend(*tensors, options.pop("is_causal", False), **options))
        self.assertEqual(other.keywords, {"causal": "is_causal"})
        self.assertEqual(Function(lambda q, k, v, **unused: attend(q, k, v)).keywords, {})

    def test_catches_up(self):
        """A caller that is killed leaves a question cut off, or none; the next one is answered."""
        here, there = socket.socketpair()
        server = threading.Thread(target=serve, args=(Function(RIGHT["formula"].function), there, Claims()))
        server.start()
        with here, there, here.makefile("r", newline="\n") as lines:
            for left in "call 12 dtype=f32 cau", "sees 13 he", "":
                here.sendall(f"{left}\nsync 77\n".encode())
                if left:
                    self.assertIn("failed 0", lines.readline())
                self.assertEqual(lines.readline(), "done 77\n")
            here.shutdown(socket.SHUT_RDWR)
            server.join()

    def test_pace(self):
        pace = Pace()
        self.assertTrue(pace.allows(10**9, 10**12))
        pace.note(10**5, 10**7, time.process_time() - 20)  # a call of 20 s leaves 20 s, of which one takes a part
        self.assertTrue(pace.allows(100, 10**4))
        self.assertFalse(pace.allows(10**4, 1))
        self.assertFalse(pace.allows(1, 10**6))


if __name__ == "__main__":
    unittest.main()
