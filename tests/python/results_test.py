"""Results files as tables, and figures of them: against `attnlab export --csv` and medians computed anew."""
import csv
import functools
import gzip
import io
import json
import os
import pathlib
import subprocess
import tempfile
import unittest
import warnings
from unittest import mock

import h5py
import matplotlib.pyplot as plt
import numpy as np
import pandas

import attnlab

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONFIG = """
schema: 1
grid: {n: [64, 128, 256], heads: 1, d: 16, causal: yes, seed: [0, 1]}
variants: [full, tiled, longformer: {window: [16, 32]}, topk: {k: [4, 8]}, linformer: {k: 32}, performer: {features: 32}]
datasets: gaussian
threads: 1
cache: [warm, cold]
timing: {min_time: 0.001, max_time: 0.01, warmup: 0.0005, samples: 4}
"""


def program(*arguments):
    done = subprocess.run([os.environ["ATTNLAB_PROGRAM"], *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{arguments}: exit {done.returncode}: {done.stderr}"
    return done.stdout


@functools.lru_cache(maxsize=1)
def sweep():
    """Where a small sweep is, which all tests look at, with a folder for other files."""
    folder = tempfile.TemporaryDirectory()
    unittest.addModuleCleanup(folder.cleanup)
    path, config = pathlib.Path(folder.name, "x.h5"), pathlib.Path(folder.name, "x.yaml")
    config.write_text(CONFIG)
    program("run", config, "-o", path, "--quiet")
    return folder, path


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder, cls.path = sweep()
        cls.runs = attnlab.load(cls.path)
        cls.exported = list(csv.DictReader(io.StringIO(program("export", "--csv", cls.path))))

    def tearDown(self):
        plt.close("all")


class Tables(Case):
    def test_values_are_those_of_the_export(self):
        runs = self.runs
        self.assertEqual(len(runs), len(self.exported))
        for name in "variant", "dataset", "status", "cache_state", "verdict", "ref_kind", "dtype", "isa", "message":
            self.assertEqual(list(runs[name]), [row[name] for row in self.exported], name)
        for name in "n", "time_median", "time_ci_lo", "time_ci_hi", "err_rel_fro", "err_rel_fro_hi", "keys_mean", "seed":
            want = np.array([float(row[name] or "nan") for row in self.exported])
            np.testing.assert_allclose(runs[name].astype(float), want, rtol=1e-15, err_msg=name)
        self.assertEqual(list(runs["causal"].map(int)), [int(row["causal"]) for row in self.exported])
        self.assertEqual(runs["causal"].dtype, bool)
        self.assertEqual({"ok", "unsupported"}, set(runs["status"]))
        self.assertTrue((runs["status"][runs["variant"] == "linformer"] == "unsupported").all())
        self.assertTrue((abs(runs["start_time"] - pandas.Timestamp.utcnow().tz_localize(None)) < pandas.Timedelta("1h")).all())

    def test_comparison(self):
        same = attnlab.compare(self.path, self.path)
        self.assertEqual((same["pairs"], same["errors"], same["only_a"]), (len(self.runs), 0, 0))
        self.assertEqual(same["mean"]["ratio"][0], 1)
        with self.assertRaises(attnlab.Error) as caught:
            attnlab.compare(self.path, "/nowhere.h5")
        self.assertEqual(caught.exception.status, "exit 74")

    def test_run(self):
        config = {"schema": 1, "grid": {"n": [64], "heads": 1, "d": 16, "causal": True}, "datasets": "gaussian", "nulls": False,
                  "variants": ["tiled", {"topk": {"k": [4, 8]}}, "linformer", {"planted": {"fault": ["zero", "crash"]}}],
                  "timing": {"min_time": 1e-05, "max_time": 0.005}}
        written, kept = (pathlib.Path(self.folder.name, name) for name in ("run.yaml", "kept.h5"))
        written.write_text("schema: 1\ngrid: {n: [64], heads: 1, d: 16, causal: yes}\ndatasets: gaussian\nnulls: no\nvariants: [tiled, "
                           "topk: {k: [4, 8]}, linformer, planted: {fault: [zero, crash]}]\ntiming: {min_time: 1e-05, max_time: 0.005}\n")
        planted = os.path.join(os.environ["ATTNLAB_BUILD"], "tests", "plugins", "planted.so")
        with mock.patch.object(attnlab.library, "plugins", [planted]):
            runs, again, resumed = attnlab.run(config), attnlab.run(written, kept), attnlab.run(config, kept)
        same = ["label", "n", "causal", "status", "verdict", "err_rel_fro"]
        pandas.testing.assert_frame_equal(runs[same], again[same])
        pandas.testing.assert_frame_equal(again, resumed)
        self.assertEqual((len(runs), "path" in runs.attrs, again.attrs["path"]), (6, False, str(kept)))
        self.assertEqual(set(zip(runs["label"], runs["status"], runs["verdict"] == "violated")),
                         {("tiled", "ok", False), ("topk:k=4", "ok", False), ("topk:k=8", "ok", False), ("linformer:k=256", "unsupported", False),
                          ("planted:fault=zero", "ok", True), ("planted:fault=crash", "crashed", False)})
        for wrong, status in ({**config, "variants": ["tilde"]}, "exit 2"), ("/nowhere.yaml", "exit 74"):
            with self.subTest(wrong), self.assertRaisesRegex(attnlab.Error, "'tilde'.*tiled|nowhere") as caught:
                attnlab.run(wrong)
            self.assertEqual(caught.exception.status, status)

    def test_attributes(self):
        self.assertEqual((self.runs.attrs["schema"], self.runs.attrs["schema_version"] > 0), ("attnlab-results", True))
        self.assertEqual(self.runs.attrs["columns"]["time_median"], "median time of one execution [s]")

    def test_labels_are_specs(self):
        q = np.ones((1, 1, 64, 16), "f4")
        for label, own in self.runs[~self.runs["variant"].str.startswith("null_")].groupby("label"):
            self.assertNotIn("seed", label)
            self.assertEqual(own["variant"].nunique(), 1)
            attnlab.Plan(q, q, q, label)
        self.assertEqual(self.runs.groupby("variant")["label"].nunique()[["longformer", "topk", "full"]].tolist(), [2, 2, 1])

    def test_bounds(self):
        bounds = attnlab.bounds(self.path)
        with h5py.File(self.path) as file:
            group = file["bounds"]
            meanings = group["verdict"].attrs["flag_meanings"].decode().split()
            cells = group["verdict"][()]
            applies = cells != meanings.index("not_applicable")
            self.assertEqual(len(bounds), applies.sum())
            names = group["bound"].asstr()[()]
            run, column = (where[17] for where in np.nonzero(applies))
            row = bounds.iloc[17]
            self.assertEqual((row["run"], row["bound"], row["verdict"]), (run, names[column], meanings[cells[run, column]]))
            np.testing.assert_equal([row["value"], row["measured"]], [group[n][run, column] for n in ("value", "measured")])
        self.assertEqual(row["label"], self.runs["label"][run])
        self.assertEqual(row["key"], self.runs["key"][run])
        self.assertLessEqual(set(bounds["kind"]), {"hard", "prob", "model", "report", "property"})
        self.assertLessEqual({"FP-2", "SP-0", "FAV-5"}, set(bounds["bound"]))

    def test_training(self):
        path = pathlib.Path(self.folder.name, "train.h5")
        program("train", "--task", "copy", "--task", "mqar", "--seeds", 8, "--steps", 3, "-v", "vslash:vertical=2", "-v", "topk:k=2",
                "-o", path)
        lines = [json.loads(line) for line in path.with_suffix(".jsonl").read_text().splitlines()][1:]
        models = attnlab.load(path)
        self.assertEqual(len(models), len(lines))
        for name in "task", "seed", "loss", "accuracy", "swapped_loss", "swapped_accuracy":
            self.assertEqual(list(models[name]), [line[name] for line in lines], name)
        self.assertEqual(list(models["spec"]), [line["variant"] for line in lines])
        with h5py.File(path) as file:
            np.testing.assert_array_equal(file["curves/loss"], [line["curve"] for line in lines])
            np.testing.assert_array_equal(file["curves/share"], np.arange(1, 4) / 3)
        accuracy = models.pivot_table("accuracy", ["task", "seed"], "label")
        for (task, label), own in models.groupby(["task", "label"]):
            apart = (accuracy[label] - accuracy["tiled"])[task]
            np.testing.assert_allclose(own["difference"], apart.mean(), rtol=0, atol=1e-15)
            np.testing.assert_allclose((own["difference_hi"] - own["difference_lo"]) / 2, 2.364624251592785 * apart.sem(), atol=1e-15)
            self.assertEqual((own["word"] == "exact").all(), label == "tiled")
            self.assertEqual(bool(own["later"].iloc[0]), label == "vslash:vertical=2")
        self.assertEqual(models.attrs["columns"]["accuracy"], "trained and tested with the variant: share of scored positions that are right")

    def test_older_files(self):
        path = pathlib.Path(self.folder.name, "before.h5")
        path.write_bytes(gzip.decompress((ROOT / "tests/fixtures/before.h5.gz").read_bytes()))
        runs = attnlab.load(path)
        q = np.ones((1, 1, 64, 16), "f4")
        for label in set(runs["label"]):
            if not label.startswith("null_"):
                attnlab.Plan(q, q, q, label)
        self.assertGreater(len(attnlab.bounds(path)), 0)
        with h5py.File(path, "a") as file:
            file["params"][0] = '{"features": 64, "seed": 3, "eps": 0.5}'
            variant = file["variant"].asstr()[0]
        self.assertEqual(attnlab.load(path)["label"][0], f"{variant}:features=64,eps=0.5")

    def test_evaluations(self):
        path = pathlib.Path(self.folder.name, "eval.h5")
        program("eval", ROOT / "data/bytelm", "--text", ROOT / "LICENSE", "--n", 160, "--windows", 2, "-v", "topk:k=4", "-o", path)
        runs = attnlab.load(path)
        own = runs[runs["variant"] == "topk"]
        self.assertEqual(own["status"].tolist(), ["ok"])
        self.assertTrue((own["kl"] > 0).all() and own["label"].str.startswith("topk:k=4").all())
        bounds = attnlab.bounds(path)
        self.assertIn("EV-1", set(bounds["bound"]))
        self.assertLessEqual(set(bounds["verdict"]), {"pass", "consistent", "uncertifiable"})

    def test_other_files_are_refused(self):
        path = pathlib.Path(self.folder.name, "other.h5")
        with h5py.File(path, "w") as file:
            file["run"] = [1]
        with self.assertRaisesRegex(ValueError, "other.h5: expected a results file of attnlab"):
            attnlab.load(path)
        with self.assertRaises(OSError):
            attnlab.load(pathlib.Path(self.folder.name, "missing.h5"))


def lines(ax):
    """Of each line in the legend: its x, y and the ends of its bars."""
    return {bars.get_label(): (*bars.lines[0].get_data(), [collection.get_segments() for collection in bars.lines[2]])
            for bars in ax.containers}


class Figures(Case):
    one = {"causal": True, "dataset": "gaussian:std_q=1,std_k=1,std_v=1"}

    def chosen(self, **where):
        runs = self.runs[(self.runs["status"] == "ok") & (self.runs["cache_state"] == "warm")]
        for name, value in {**self.one, **where}.items():
            runs = runs[runs[name] == value]
        return runs

    def test_no_bar_where_all_rows_were_compared(self):
        point = self.runs["err_rel_fro"]
        whole = self.runs[self.runs["seed"] == self.runs["seed"].min()].assign(err_rel_fro_lo=point, err_rel_fro_hi=point)
        sampled = whole.assign(err_rel_fro_hi=2 * point)
        for runs, some in (whole, False), (sampled, True):
            bars = [bar for _, _, bars in lines(attnlab.plot.error(runs, **self.one)).values() for own in bars for bar in own]
            self.assertEqual(any(len(bar) and np.isfinite(bar).all() for bar in bars), some)
        rows = pandas.concat([whole, whole.assign(rows=64)])
        with self.assertRaisesRegex(ValueError, "choose one by rows"):
            attnlab.plot.error(rows, **self.one)

    def test_error(self):
        made = self.runs.assign(err_rel_fro_lo=self.runs["err_rel_fro"] * (0.5 + 0.1 * self.runs["seed"]),
                                err_rel_fro_hi=self.runs["err_rel_fro"] * (1.5 - 0.1 * self.runs["seed"]))
        ax = attnlab.plot.error(made, **self.one)
        self.assertEqual((ax.get_xscale(), ax.get_yscale()), ("log", "log"))
        drawn, runs = lines(ax), made.loc[self.chosen().index]
        self.assertEqual(set(drawn), set(runs["label"]))
        for label, own in runs[runs["err_rel_fro"] > 1e-5].groupby("label"):
            x, y, (bars,) = drawn[label]
            at = own.groupby("n")
            self.assertEqual(list(x), [64, 128, 256])
            np.testing.assert_allclose(y, at["err_rel_fro"].median())
            ends = np.array(bars)[:, :, 1]
            np.testing.assert_allclose(ends[:, 0], np.fmin(at["err_rel_fro"].min(), at["err_rel_fro_lo"].min()))
            np.testing.assert_allclose(ends[:, 1], np.fmax(at["err_rel_fro"].max(), at["err_rel_fro_hi"].max()))
        floor = {drawn[label][1][0] for label in runs["label"][runs["err_rel_fro"] < 1e-5]}
        self.assertEqual(len(floor), 1)
        self.assertTrue(0 < floor.pop() < runs["err_rel_fro"][runs["err_rel_fro"] > 1e-5].min())
        ax.figure.savefig(pathlib.Path(self.folder.name, "error.png"))

    def test_scaling(self):
        made = self.runs.copy()
        for name, factor in ("time_median", 1), ("time_ci_lo", 0.99), ("time_ci_hi", 1.01):
            made[name] = factor * 1e-9 * made["n"] ** 2.0
        ax = attnlab.plot.scaling(made, **self.one)
        self.assertTrue(all(label.endswith("  n^2.00") for label in lines(ax)), list(lines(ax)))
        drawn = lines(attnlab.plot.scaling(self.runs, cost="memory", **self.one))
        timed = self.chosen()
        timed = timed[timed["time_median"].notna()]
        self.assertEqual(len(drawn), timed["label"].nunique())
        for label, own in timed.groupby("label"):
            _, y, _ = next(line for name, line in drawn.items() if name.partition("  n^")[0] == label)
            np.testing.assert_allclose(y, own.groupby("n")["peak_alloc"].median())

    def test_exponents_that_are_not_known_are_withheld(self):
        made = self.runs.copy()
        made["time_median"] = 1e-9 * made["n"] ** 2.0
        for low, high in (0.2, 5), (np.nan, np.nan):  # too wide; of single samples
            made["time_ci_lo"], made["time_ci_hi"] = low * made["time_median"], high * made["time_median"]
            ends = [made["n"].min(), made["n"].max()]
            ax = attnlab.plot.scaling(made[made["n"].isin(ends)], **self.one)
            self.assertFalse([label for label in lines(ax) if "n^" in label])

    def test_values_without_intervals_draw_in_silence(self):
        made = self.runs.copy()
        made["err_rel_fro_lo"] = made["err_rel_fro_hi"] = made["err_rel_fro"]
        made["time_ci_lo"] = made["time_ci_hi"] = np.nan
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for draw in attnlab.plot.error, attnlab.plot.scaling, attnlab.plot.front:
                draw(made[made["seed"] == 0], **self.one).figure.savefig(pathlib.Path(self.folder.name, "bare.png"))

    def test_front(self):
        for cost, column in ("time", "time_median"), ("memory", "peak_alloc"), ("keys", "keys_mean"):
            ax = attnlab.plot.front(self.runs, cost=cost, **self.one)
            runs = self.chosen(n=256)
            points = runs[runs[column].notna()].groupby("label")[[column, "err_rel_fro"]].median()
            self.assertEqual(sum(len(x) for x, _, _ in lines(ax).values()), len(points))
            front, = (line for line in ax.lines if line.get_label() == "front")
            x, y = front.get_data()
            self.assertTrue((np.diff(x) > 0).all() and (np.diff(y) < 0).all())
            exact = points["err_rel_fro"] < 1e-5
            limit = min(1, runs.loc[runs["variant"] == "null_mean_v", "err_rel_fro"].median())
            for _, (spent, error) in points[~exact].iterrows():
                self.assertTrue(error >= limit or ((x <= spent) & (y <= error * (1 + 1e-12))).any(), "a point below the front")
            self.assertIn("256", ax.get_ylabel())
            drawn = lines(ax)
            for method in "longformer", "topk":  # their two settings are one line, in the order of their parameter
                x, _, _ = drawn[method]
                labels = [label for label in points.index if label.startswith(method)]
                order = sorted(labels, key=lambda label: float(label.partition("=")[2]))
                np.testing.assert_allclose(x, points[column][order])
        ax = attnlab.plot.front(self.runs, n=64, **self.one)
        self.assertIn("64", ax.get_ylabel())

    def test_times_of_others(self):
        times = pandas.DataFrame([("full", "H100", 256, 0.5, "yes"), ("full", "H100", 64, 9, ""), ("full", "A100", 256, 1, "no")],
                                 columns=["setting", "device", "n", "milliseconds", "causal"]).replace("", np.nan)
        drawn = {line.get_label(): line.get_data() for line in attnlab.plot.front(self.runs, times=times, **self.one).lines}
        np.testing.assert_allclose(drawn["H100"][0], [5e-4])
        self.assertNotIn("A100", drawn)
        for column, value in ("milliseconds", -1), ("milliseconds", "x"), ("device", None):
            bad = times.assign(**{column: value}) if value else times.drop(columns=column)
            with self.assertRaisesRegex(ValueError, f"times: expected {column}"):
                attnlab.plot.front(self.runs, times=bad, **self.one)

    def test_the_mean_of_v(self):
        made = self.runs.copy()
        made.loc[made["variant"] == "null_mean_v", "err_rel_fro"] = 0.05
        made.loc[made["variant"] == "topk", "err_rel_fro"] = 0.06  # nearer than zeros, and better than nothing by no means
        ax = attnlab.plot.front(made, **self.one)
        front, = (line for line in ax.lines if line.get_label() == "front")
        self.assertTrue((front.get_data()[1] < 0.05).all())
        self.assertIn("no better than the mean of V", [text.get_text() for text in ax.texts])
        nulls = [bars.lines[0].get_marker() for bars in attnlab.plot.error(made, **self.one).containers
                 if bars.get_label().startswith("null_")]
        self.assertEqual(len(set(nulls)), len(nulls))

    def test_zeros(self):
        made = self.runs.copy()
        made.loc[made["variant"] == "full", ["err_rel_fro", "err_rel_fro_lo", "err_rel_fro_hi"]] = 0
        for draw in attnlab.plot.error, attnlab.plot.front:
            ax = draw(made, **self.one)
            self.assertTrue(all((y > 0).all() for _, y, _ in lines(ax).values()))
            ax.figure.savefig(pathlib.Path(self.folder.name, "zeros.png"))
        only = made[made["variant"] == "full"].assign(err_rel_fro=1e-7)
        drawn = lines(attnlab.plot.error(only, **self.one))
        np.testing.assert_array_equal(drawn["full"][1], 1e-7)  # nothing else is there to lie above

    def test_what_is_left_out(self):
        made = self.runs.copy()
        made.loc[made["variant"] == "topk", "verdict"] = "violated"
        made.loc[made["variant"] == "performer", "status"] = "timeout"
        made.loc[made["cache_state"] == "cold", "err_rel_fro"] *= 100
        drawn = lines(attnlab.plot.error(made, **self.one))
        self.assertEqual({label.partition(":")[0] for label in drawn if not label.startswith("null_")}, {"full", "tiled", "longformer"})
        label, own = next(iter(self.chosen(variant="longformer").groupby("label")))
        np.testing.assert_allclose(drawn[label][1], own.groupby("n")["err_rel_fro"].median())

    def test_several_problems_do_not_compare(self):
        runs = pandas.concat([self.runs, self.runs.assign(causal=False),
                              self.runs.assign(dataset="gaussian:std_q=2,std_k=1,std_v=1")])
        for draw in attnlab.plot.error, attnlab.plot.scaling, attnlab.plot.front:
            with self.assertRaisesRegex(ValueError, "choose one by dataset and causal .*std_q=2.*causal: False, True"):
                draw(runs)
        with self.assertRaisesRegex(ValueError, "choose one by dataset "):
            attnlab.plot.error(runs, causal=True, dataset="gaussian")
        with self.assertRaisesRegex(ValueError, "no run that ended well has .*needle"):
            attnlab.plot.error(self.runs, dataset="needle")
        with self.assertRaisesRegex(ValueError, "casual=True"):
            attnlab.plot.error(self.runs, casual=True)
        with self.assertRaisesRegex(ValueError, "cost='money'"):
            attnlab.plot.front(self.runs, cost="money")
        attnlab.plot.error(runs, causal=False, dataset="gaussian")

    def test_axes_of_ones_own(self):
        _, axes = plt.subplots(1, 2)
        self.assertIs(attnlab.plot.error(self.runs, axes[0], **self.one), axes[0])
        self.assertIs(attnlab.plot.scaling(self.runs, ax=axes[1], **self.one), axes[1])
