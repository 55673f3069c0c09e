"""The programs of today in the place of stand-ins: transformers' models with attention by attnlab, and captured by the program
from the files that they write. By hand: `tests/run.sh --real`."""
import pathlib
import subprocess
import tempfile
import unittest

import gguf
import h5py
import numpy as np
import torch
import transformers
from transformers import AttentionInterface, AttentionMaskInterface

import attnlab
import attnlab.torch
from attnlab import program

N = 40
GGUF_NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output", "model.layers.": "blk.",
              ".input_layernorm": ".attn_norm", ".self_attn.q_proj": ".attn_q", ".self_attn.k_proj": ".attn_k",
              ".self_attn.v_proj": ".attn_v", ".self_attn.o_proj": ".attn_output", ".post_attention_layernorm": ".ffn_norm",
              ".mlp.gate_proj": ".ffn_gate", ".mlp.up_proj": ".ffn_up", ".mlp.down_proj": ".ffn_down"}
SMALL = {"vocab_size": 300, "hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "max_position_embeddings": 128, "bos_token_id": 1, "eos_token_id": 2}
MODELS = {"llama": (transformers.LlamaConfig, {}), "mistral": (transformers.MistralConfig, {"sliding_window": None}),
          "qwen2": (transformers.Qwen2Config, {}), "qwen3": (transformers.Qwen3Config, {"head_dim": 16}),
          "llama3 positions": (transformers.LlamaConfig, {"rope_parameters": {
              "rope_type": "llama3", "rope_theta": 10000.0, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
              "original_max_position_embeddings": 64}})}


def made(name, attention="eager"):
    torch.manual_seed(3)
    kind, more = MODELS[name]
    model = transformers.AutoModelForCausalLM.from_config(kind(**SMALL, **more), attn_implementation=attention)
    return model.float().eval()


def drawn(seed=1):
    return torch.randint(3, SMALL["vocab_size"], (2, N), generator=torch.Generator().manual_seed(seed))


HALVES = {"Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,), "IQ2_XXS": (0,), "IQ4_NL": (0,),
          "IQ4_XS": (0,)}  # where a block has its scales


def packed_as(x, kind):
    """The array in blocks; of what gguf does not write random ones with small scales."""
    if kind.name not in HALVES:
        return gguf.quants.quantize(x, kind)
    block, size = gguf.GGML_QUANT_SIZES[kind]
    made = np.random.default_rng(7).integers(0, 256, (x.size // block, size), dtype=np.uint8)
    for at in HALVES[kind.name]:
        made[:, at : at + 2] = np.array([1e-4], np.float16).view(np.uint8)
    return made.reshape(x.shape[0], -1)


class Models(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.captured = {}
        AttentionInterface.register("attnlab", attnlab.torch.hf_attention("tiled", captured=cls.captured))
        AttentionMaskInterface.register("attnlab", attnlab.torch.hf_mask)

    def near(self, got, want, most=2e-5):
        got, want = (np.asarray(x, "f8") for x in (got, want))
        self.assertEqual(got.shape, want.shape)
        self.assertLess(np.abs(got - want).max(), most * max(np.abs(want).max(), 1e-3))

    def test_logits_and_generation(self):
        for name in MODELS:
            with self.subTest(name), torch.no_grad():
                exact, ours = made(name), made(name, "attnlab")
                ids = drawn()
                padded = torch.ones_like(ids)
                padded[1, :7] = 0  # on the left
                for mask in None, padded:
                    seen = torch.ones_like(ids).bool() if mask is None else mask.bool()
                    got, want = ours(ids, attention_mask=mask).logits, exact(ids, attention_mask=mask).logits
                    self.near(got[seen], want[seen])
                options = {"max_new_tokens": 8, "do_sample": False, "attention_mask": padded, "pad_token_id": 0}
                self.assertTrue(torch.equal(ours.generate(ids, **options), exact.generate(ids, **options)))

    def test_gradients(self):
        for name in MODELS:
            with self.subTest(name):
                exact, ours = made(name), made(name, "attnlab")
                for model in exact, ours:
                    model(drawn(), labels=drawn(2)).loss.backward()
                for (which, a), b in zip(exact.named_parameters(), ours.parameters()):
                    with self.subTest(which):
                        self.near(b.grad, a.grad, 1e-4)

    def captures(self, folder, options):
        """q, k and v of layer 1 by the program."""
        with tempfile.TemporaryDirectory() as place:
            out = f"{place}/qkv.h5"
            done = subprocess.run([program.program_path(), "capture", folder, "--layer", "1", "-o", out, *options], check=False,
                                  capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            with h5py.File(out) as file:
                return [file[name][...] for name in "qkv"]

    def test_files(self):
        for name in MODELS:
            with self.subTest(name), tempfile.TemporaryDirectory() as folder, torch.no_grad():
                model, ids = made(name, "attnlab"), drawn()[:1]
                model.save_pretrained(folder)
                np.save(pathlib.Path(folder, "ids.npy"), ids.numpy())
                model(ids)
                for got, want in zip(self.captures(folder, ["--tokens", f"{folder}/ids.npy", "--bos", "none"]), self.captured[1]):
                    self.near(got, want[0], 1e-4)

    def test_gguf(self):
        """Files that gguf writes, whose weights are those that it reads of them."""
        for kind in ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ2_XXS",
                     "IQ4_NL", "IQ4_XS", "MXFP4", "TQ1_0", "TQ2_0"):
            with self.subTest(kind), tempfile.TemporaryDirectory() as folder, torch.no_grad():
                torch.manual_seed(4)
                config = transformers.LlamaConfig(**{**SMALL, "hidden_size": 256, "intermediate_size": 256})
                model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="attnlab").float().eval()
                self.write_gguf(f"{folder}/model.gguf", model, config, gguf.GGMLQuantizationType[kind])
                ids = drawn()[:1]
                np.save(f"{folder}/ids.npy", ids.numpy())
                model(ids)
                for got, want in zip(self.captures(f"{folder}/model.gguf", ["--tokens", f"{folder}/ids.npy", "--bos", "none"]),
                                     self.captured[1]):
                    self.near(got, want[0], 1e-4)

    @staticmethod
    def write_gguf(path, model, config, kind):
        """Matrices are rounded to the type, in the model as well."""
        writer = gguf.GGUFWriter(path, "llama")
        heads = {"q": config.num_attention_heads, "k": config.num_key_value_heads}
        writer.add_context_length(config.max_position_embeddings)
        writer.add_embedding_length(config.hidden_size)
        writer.add_block_count(config.num_hidden_layers)
        writer.add_feed_forward_length(config.intermediate_size)
        writer.add_head_count(heads["q"])
        writer.add_head_count_kv(heads["k"])
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
        writer.add_rope_dimension_count(config.hidden_size // heads["q"])
        writer.add_vocab_size(config.vocab_size)
        for name, x in model.named_parameters():
            own = name
            for theirs, ours in GGUF_NAMES.items():
                own = own.replace(theirs, ours)
            x = x.data
            which = own.split(".")[-2].removeprefix("attn_")
            turn = x.ndim == 2 and which in heads  # pairs of the rotation stand side by side in the file
            if turn:
                x = x.reshape(heads[which], 2, -1, x.shape[1]).transpose(1, 2).reshape(x.shape)
            if x.ndim == 1:
                writer.add_tensor(own, x.numpy())
                continue
            packed = packed_as(np.ascontiguousarray(x.numpy()), kind)
            writer.add_tensor(own, packed, raw_dtype=kind)
            back = torch.from_numpy(gguf.quants.dequantize(packed, kind).astype("f4").reshape(x.shape))
            if turn:
                back = back.reshape(heads[which], -1, 2, x.shape[1]).transpose(1, 2).reshape(x.shape)
            model.get_parameter(name).data.copy_(back)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()


if __name__ == "__main__":
    unittest.main()
