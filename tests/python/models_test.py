"""The pre-trained models of data/models/get.sh, as `eval` runs them, against transformers with the same files: the ids of a text,
and the perplexity of a window of it, to 1e-4. By hand: `tests/run.sh --real`; models are fetched into build/models."""
import json
import math
import os
import pathlib
import subprocess
import tempfile
import unittest

import numpy as np
import tokenizers
import torch
import transformers

from attnlab import program

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEXT = ROOT / "README.md"
N, SKIP = 250, 16


def evaluated(model, *options):
    """The first run of the program's."""
    done = subprocess.run([program.program_path(), "eval", str(model), "-v", "full", "-n", str(N), "-w", "1", "--bos", "none",
                           "--task", f"text:skip={SKIP}", "--json", *options], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[0])


class Models(unittest.TestCase):
    def test_perplexity(self):
        for name in "stories15m", "minimind2", "smollm2", "tinyllama":
            with self.subTest(name), tempfile.TemporaryDirectory() as folder, torch.no_grad():
                subprocess.run([ROOT / "data/models/get.sh", name], check=True, stdout=subprocess.DEVNULL)
                at = ROOT / "build" / "models" / name
                whole = next(at.glob("*.gguf"), at)  # a directory, or the file in it
                options = {} if whole == at else {"gguf_file": whole.name}
                encoder = None
                if options or (at / "tokenizer.json").exists():
                    encoder = transformers.AutoTokenizer.from_pretrained(at, **options)
                if name == "smollm2":  # of GGUF files transformers cuts every text as GPT-2's; this model's has digits apart
                    steps = tokenizers.pre_tokenizers
                    encoder.backend_tokenizer.pre_tokenizer = steps.Sequence([steps.Digits(True), steps.ByteLevel(False)])
                model = transformers.AutoModelForCausalLM.from_pretrained(at, dtype=torch.float32, **options).eval()
                ids = np.random.default_rng(1).integers(3, model.config.vocab_size, N)
                if encoder:
                    ids = np.array(encoder(TEXT.read_text(encoding="utf-8"), add_special_tokens=False).input_ids)
                    np.save(f"{folder}/all.npy", ids)
                    by_ids, by_text = evaluated(whole, "--tokens", f"{folder}/all.npy"), evaluated(whole, "--text", str(TEXT))
                    self.assertEqual(by_text["tokens_sha256"], by_ids["tokens_sha256"])
                np.save(f"{folder}/window.npy", ids[:N])
                logits = model(torch.from_numpy(ids[None, :N])).logits[0, SKIP:-1].double()
                want = torch.nn.functional.cross_entropy(logits, torch.from_numpy(ids[SKIP + 1 : N])).item()
                got = evaluated(whole, "--tokens", f"{folder}/window.npy")["nll_exact"]
                print(f"{name}: perplexity {math.exp(got):.6g}, by transformers {math.exp(want):.6g}", flush=True)
                self.assertLess(abs(math.exp(got - want) - 1), 1e-4)


if __name__ == "__main__":
    os.chdir(ROOT)
    unittest.main()
