"""Small random models of every architecture, made and saved by transformers, by the program: logits of a padded batch, all at once
and token by token; of encoders q, k and v. By hand: `tests/run.sh --real`."""
import os
import pathlib
import subprocess
import tempfile
import unittest

import h5py
import numpy as np
import torch
import transformers as t

from attnlab import program

NEAR = 1e-5  # of the largest number: f32 against f32
SMALL = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4, "num_attention_heads": 4,
         "num_key_value_heads": 2, "max_position_embeddings": 64, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
EQUAL = {name: value for name, value in SMALL.items() if name != "num_key_value_heads"}
GEMMA = {**SMALL, "head_dim": 16, "query_pre_attn_scalar": 20, "sliding_window": 5}
PART = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}
LONGROPE = {"rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 0.5, "short_factor": [1.0, 1.25],
            "long_factor": [2.0, 4.0]}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 16}
MODELS = {
    "llama": t.LlamaConfig(**SMALL, hidden_act="gelu", attention_bias=True, mlp_bias=True),
    "yarn": t.LlamaConfig(**SMALL, rope_parameters={**YARN, "mscale": 1.5, "mscale_all_dim": 0.5}),
    "mistral": t.MistralConfig(**SMALL, sliding_window=6),
    "qwen2": t.Qwen2Config(**SMALL, use_sliding_window=True, sliding_window=6, max_window_layers=2),
    "qwen3": t.Qwen3Config(**SMALL, head_dim=16),
    "gemma2": t.Gemma2Config(**GEMMA, attn_logit_softcapping=2.0, final_logit_softcapping=3.0),
    "gemma3": t.Gemma3TextConfig(**{**GEMMA, "num_hidden_layers": 7}, rope_parameters={
        "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 100.0}}),
    "olmo2": t.Olmo2Config(**SMALL),
    "smollm3": t.SmolLM3Config(**SMALL, no_rope_layer_interval=2),
    "smollm3 windows": t.SmolLM3Config(**SMALL, no_rope_layers=[1, 0, 0, 1], use_sliding_window=True, sliding_window=6),
    "phi3": t.Phi3Config(**SMALL, sliding_window=7),
    "phi3 longrope": t.Phi3Config(**SMALL, original_max_position_embeddings=16, rope_parameters=LONGROPE),
    "granite": t.GraniteConfig(**SMALL, embedding_multiplier=3.0, residual_multiplier=0.4, attention_multiplier=0.3,
                               logits_scaling=5.0, attention_bias=True),
    "stablelm": t.StableLmConfig(**SMALL, use_qkv_bias=True, rope_parameters=PART),
    "gpt2": t.GPT2Config(vocab_size=64, n_positions=64, n_embd=32, n_layer=3, n_head=4, bos_token_id=1, eos_token_id=2),
    "pythia": t.GPTNeoXConfig(**EQUAL, rope_parameters=PART),
    "neox one after another": t.GPTNeoXConfig(**EQUAL, use_parallel_residual=False, attention_bias=False, rope_parameters=PART),
    "bert": t.BertConfig(**EQUAL),
    "modernbert": t.ModernBertConfig(**EQUAL, local_attention=8, cls_token_id=1, sep_token_id=2),
}
LENGTHS = [24, 17, 9]


def made(config, encoder):
    kind = t.AutoModelForMaskedLM if encoder else t.AutoModelForCausalLM
    model = kind.from_config(config, attn_implementation="eager").float().eval()
    draw = torch.Generator().manual_seed(5)
    for p in model.parameters():  # larger than a model begins with, so that nothing is nearly linear
        noise = torch.randn(p.shape, generator=draw)
        p.data = p.data + 0.2 * noise if p.ndim == 1 else 0.25 * noise
    return model


class Architectures(unittest.TestCase):
    def near(self, got, want):
        want = np.asarray(want, "f8")
        self.assertEqual(got.shape, want.shape)
        self.assertLess(np.abs(got - want).max(), NEAR * np.abs(want).max())

    def ask(self, *arguments):
        ask = pathlib.Path(os.environ["ATTNLAB_BUILD"], "tests", "attn_ask")
        done = subprocess.run([ask, *map(str, arguments)], check=False, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.split("\n")

    def decoder(self, model, folder, ids, together):
        """Every row of a batch, padded behind its end; not together where a row's length decides how it turns."""
        seen = torch.tensor([[i < n for i in range(ids.shape[1])] for n in LENGTHS])
        batch = model(ids * seen, attention_mask=seen.long()).logits
        for row, n in enumerate(LENGTHS):
            want = batch[row, :n] if together else model(ids[row : row + 1, :n]).logits[0]
            self.near(np.array([line.split() for line in self.ask(folder, "all", *ids[row, :n].tolist())[:-1]], "f8"), want)
            if together or n + 1 > 16:
                self.near(np.array(self.ask(folder, 1, *ids[row, :n].tolist())[0].split(), "f8"), want[-1])

    def encoder(self, model, folder, ids):
        """q, k and v of the last layer; ModernBERT's before they turn."""
        layer, caught, bert = model.config.num_hidden_layers - 1, [], model.config.model_type == "bert"
        if bert:
            attention = model.bert.encoder.layer[layer].attention.self
            modules = [attention.query, attention.key, attention.value]
        else:
            modules = [model.model.layers[layer].attn.Wqkv]
        for module in modules:
            module.register_forward_hook(lambda module, given, out: caught.append(out))
        seen = torch.tensor([[i < n for i in range(ids.shape[1])] for n in LENGTHS])
        model(ids * seen, attention_mask=seen.long())
        want = caught if bert else caught[0].chunk(3, dim=-1)
        for row, n in enumerate(LENGTHS):
            np.save(f"{folder}/ids.npy", ids[row, :n].numpy())
            subprocess.run([program.program_path(), "capture", folder, "--layer", str(layer), "--tokens", f"{folder}/ids.npy",
                            "--bos", "none", "-o", f"{folder}/{row}.h5", *([] if bert else ["--pre-rope"])], check=True)
            with h5py.File(f"{folder}/{row}.h5") as file:
                for name, x in zip("qkv", want):
                    self.near(file[name][...], x[row, :n].reshape(n, 4, 8).transpose(0, 1))

    def test_saved_models(self):
        for name, config in MODELS.items():
            with self.subTest(name), tempfile.TemporaryDirectory() as folder, torch.no_grad():
                encoder = config.model_type in ("bert", "modernbert")
                model = made(config, encoder)
                model.save_pretrained(folder)
                ids = torch.randint(3, 64, (3, LENGTHS[0]), generator=torch.Generator().manual_seed(1))
                if encoder:
                    self.encoder(model, folder, ids)
                else:
                    self.decoder(model, folder, ids, name != "phi3 longrope")


if __name__ == "__main__":
    unittest.main()
