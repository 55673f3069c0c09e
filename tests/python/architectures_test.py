"""Small random models of every architecture, made and saved by transformers, by the program: logits of a padded batch, all at once
and token by token; of encoders q, k and v. By hand: `tests/run.sh --real`."""
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import gguf
import h5py
import numpy as np
import torch
import transformers as t
from safetensors.torch import load_file, save_file

from attnlab import program

NEAR = 1e-5  # of the largest number: f32 against f32
SMALL = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4, "num_attention_heads": 4,
         "num_key_value_heads": 2, "max_position_embeddings": 64, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
EQUAL = {name: value for name, value in SMALL.items() if name != "num_key_value_heads"}
GEMMA = {**SMALL, "head_dim": 16, "query_pre_attn_scalar": 20, "sliding_window": 5}
PART = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}
LONGROPE = {"rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 0.5, "short_factor": [1.0, 1.25],
            "long_factor": [2.0, 4.0]}
EXPERTS = {"num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 16}
AXES = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 1, 2]}
VISION = {"depth": 1, "embed_dim": 32, "hidden_size": 32, "num_heads": 4}
IMAGES = {"image_token_id": 64, "video_token_id": 65, "tie_word_embeddings": False}
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
    "stablelm in parallel": t.StableLmConfig(**SMALL, use_parallel_residual=True, qk_layernorm=True, rope_parameters=PART),
    "mixtral": t.MixtralConfig(**SMALL, num_local_experts=5, num_experts_per_tok=2),
    "qwen2 experts": t.Qwen2MoeConfig(**SMALL, **EXPERTS, shared_expert_intermediate_size=24, mlp_only_layers=[1]),
    "qwen3 experts": t.Qwen3MoeConfig(**SMALL, **EXPERTS, head_dim=16, norm_topk_prob=True, decoder_sparse_step=2),
    "gpt-oss": t.GptOssConfig(**SMALL, head_dim=16, sliding_window=6, num_local_experts=5, num_experts_per_tok=2, swiglu_limit=2.0,
                              swiglu_alpha=1.5, rope_parameters={**YARN, "truncate": False}),
    "qwen2 vl": t.Qwen2VLConfig(text_config={**SMALL, "rope_parameters": AXES}, vision_config=VISION, **IMAGES),
    "qwen2.5 vl": t.Qwen2_5_VLConfig(text_config={**SMALL, "rope_parameters": AXES}, vision_config={
        "depth": 1, "hidden_size": 32, "out_hidden_size": 32, "num_heads": 4, "intermediate_size": 48}, **IMAGES),
    "gpt2": t.GPT2Config(vocab_size=64, n_positions=64, n_embd=32, n_layer=3, n_head=4, bos_token_id=1, eos_token_id=2),
    "pythia": t.GPTNeoXConfig(**EQUAL, rope_parameters=PART),
    "neox one after another": t.GPTNeoXConfig(**EQUAL, use_parallel_residual=False, attention_bias=False, rope_parameters=PART),
    "bert": t.BertConfig(**EQUAL),
    "modernbert": t.ModernBertConfig(**EQUAL, local_attention=8, cls_token_id=1, sep_token_id=2),
}
# As GGUF files have them: scales, bases and layers that turn are not keys there.
IN_GGUF = {
    "llama": t.LlamaConfig(**SMALL), "qwen2": t.Qwen2Config(**SMALL), "qwen3": MODELS["qwen3"],
    "gemma2": t.Gemma2Config(**{**GEMMA, "query_pre_attn_scalar": 16}, attn_logit_softcapping=2.0, final_logit_softcapping=3.0),
    "gemma3": t.Gemma3TextConfig(**{**GEMMA, "query_pre_attn_scalar": 16, "num_hidden_layers": 7}),
    "olmo2": MODELS["olmo2"], "smollm3": t.SmolLM3Config(**SMALL), "phi3": MODELS["phi3"], "granite": MODELS["granite"],
    "stablelm": MODELS["stablelm"], "stablelm in parallel": MODELS["stablelm in parallel"], "mixtral": MODELS["mixtral"],
    "qwen2 experts": t.Qwen2MoeConfig(**SMALL, **EXPERTS, shared_expert_intermediate_size=24),
    "qwen3 experts": t.Qwen3MoeConfig(**SMALL, **EXPERTS, head_dim=16, norm_topk_prob=True),
    "qwen2 vl": MODELS["qwen2 vl"],
    "gpt-oss": t.GptOssConfig(**SMALL, head_dim=16, sliding_window=6, num_local_experts=5, num_experts_per_tok=2,
                              rope_parameters={**YARN, "truncate": False}),
    "gpt2": MODELS["gpt2"], "pythia": MODELS["pythia"], "neox": MODELS["neox one after another"]}
LENGTHS = [24, 17, 9]


def made(config, encoder):
    images = hasattr(config, "vision_config")
    kind = t.AutoModelForMaskedLM if encoder else t.AutoModelForImageTextToText if images else t.AutoModelForCausalLM
    model = kind.from_config(config, attn_implementation="eager").float().eval()
    draw = torch.Generator().manual_seed(5)
    for p in model.parameters():  # larger than a model begins with, so that nothing is nearly linear
        noise = torch.randn(p.shape, generator=draw)
        p.data = p.data + 0.2 * noise if p.ndim == 1 else 0.25 * noise
    return model


def stored(config, name, x):
    """What llama.cpp's converters make of a tensor."""
    kind, heads = config.model_type, config.num_attention_heads
    which = name.split(".")[-2]
    if kind.startswith("gemma") and which.endswith("norm"):
        return x + 1
    if kind in ("llama", "granite", "smollm3", "mixtral") and which in ("q_proj", "k_proj"):  # pairs side by side
        count = heads if which == "q_proj" else config.num_key_value_heads
        return x.reshape(count, 2, -1, *x.shape[1:]).transpose(1, 2).reshape(x.shape)
    if kind == "gpt2" and x.ndim == 2 and which.startswith("c_"):
        return x.T
    if kind == "gpt_neox" and which == "query_key_value":
        return x.reshape(heads, 3, -1, *x.shape[1:]).transpose(0, 1).reshape(x.shape)
    return x


def tensors(model):
    """Names and numbers; experts, and norms of heads, as GGUF files have them: gate and up apart, heads together."""
    heads = {}
    for name, x in model.named_parameters():
        if "visual" in name:
            continue
        name = name.replace("language_model.", "")
        turned = model.config.model_type == "gpt_oss" and "experts" in name  # [experts, columns, rows], gate and up in turn
        if ".norms." in name:
            heads.setdefault(name.split(".norms.")[0].replace("layernorm", "norm"), []).append(x.data)
        elif "experts.gate_up_proj" in name:
            halves = (x.data[..., ::2], x.data[..., 1::2]) if turned else x.data.chunk(2, dim=1)
            for part, half in zip(("gate", "up"), halves):
                end = ".bias" if name.endswith("_bias") else ".weight"
                yield (name.removesuffix("_bias").replace("gate_up", part) + end, half.mT if turned and x.ndim == 3 else half)
        elif turned:
            yield name.replace("proj_bias", "proj.bias"), x.data.mT if x.ndim == 3 else x.data
        else:
            yield name, x.data[0] if name.endswith("shared_expert_gate.weight") else x.data
    yield from ((name, torch.stack(norms)) for name, norms in heads.items())


def write_gguf(path, model):
    c = model.config.get_text_config()
    arch = {"qwen2_vl_text": "qwen2vl", "gemma3_text": "gemma3", "gpt_neox": "gptneox", "mixtral": "llama", "qwen2_moe": "qwen2moe", "qwen3_moe": "qwen3moe",
            "gpt_oss": "gpt-oss"}.get(c.model_type, c.model_type)
    number = next(n for n, name in gguf.MODEL_ARCH_NAMES.items() if name == arch)
    names, w = gguf.get_tensor_name_map(number, c.num_hidden_layers), gguf.GGUFWriter(path, arch)
    head = getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads
    rope = getattr(c, "rope_parameters", None) or {}
    rope = rope.get("full_attention", rope)
    w.add_context_length(c.max_position_embeddings)
    w.add_embedding_length(c.hidden_size)
    w.add_block_count(c.num_hidden_layers)
    w.add_feed_forward_length(getattr(c, "intermediate_size", None) or 4 * c.hidden_size)
    w.add_head_count(c.num_attention_heads)
    w.add_head_count_kv(getattr(c, "num_key_value_heads", c.num_attention_heads))
    w.add_key_length(head)
    if hasattr(c, "rms_norm_eps"):
        w.add_layer_norm_rms_eps(c.rms_norm_eps)
    else:
        w.add_layer_norm_eps(getattr(c, "layer_norm_eps", None) or c.layer_norm_epsilon)
    if rope:
        w.add_rope_freq_base(rope["rope_theta"])
        w.add_rope_dimension_count(int(head * rope.get("partial_rotary_factor", 1)))
    if arch == "gpt-oss":
        w.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        w.add_rope_scaling_factor(rope["factor"])
        w.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    if getattr(c, "num_experts_per_tok", None):
        w.add_expert_count(getattr(c, "num_experts", None) or c.num_local_experts)
        w.add_expert_used_count(c.num_experts_per_tok)
        w.add_expert_feed_forward_length(getattr(c, "moe_intermediate_size", None) or c.intermediate_size)
    if hasattr(c, "shared_expert_intermediate_size"):
        w.add_expert_shared_feed_forward_length(c.shared_expert_intermediate_size)
    if arch in ("gemma2", "gemma3", "phi3", "gpt-oss"):
        w.add_sliding_window(c.sliding_window)
    if arch == "gemma2":
        w.add_attn_logit_softcapping(c.attn_logit_softcapping)
        w.add_final_logit_softcapping(c.final_logit_softcapping)
    if arch in ("gptneox", "stablelm"):
        w.add_parallel_residual(c.use_parallel_residual)
    if arch == "granite":
        w.add_attention_scale(c.attention_multiplier)
        w.add_embedding_scale(c.embedding_multiplier)
        w.add_residual_scale(c.residual_multiplier)
        w.add_logit_scale(c.logits_scaling)
    for name, x in tensors(model):
        there = names.get_name(name, (".weight", ".bias"))
        there += "" if there.endswith((".weight", ".bias")) else ".weight"
        w.add_tensor(there, np.ascontiguousarray(stored(c, name, x).numpy()))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


class Architectures(unittest.TestCase):
    def near(self, got, want):
        want = np.asarray(want, "f8")
        self.assertEqual(got.shape, want.shape)
        self.assertLess(np.abs(got - want).max(), NEAR * np.abs(want).max())

    def ask(self, *arguments, code=0):
        ask = pathlib.Path(os.environ["ATTNLAB_BUILD"], "tests", "attn_ask")
        done = subprocess.run([ask, *map(str, arguments)], check=False, capture_output=True, text=True)
        self.assertEqual(done.returncode, code, done.stderr)
        return (done.stderr if code else done.stdout).split("\n")

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

    def images(self, folder, ids):
        """Tokens that stand for an image are refused; tensors have either of two names."""
        config, weights = pathlib.Path(folder, "config.json"), f"{folder}/model.safetensors"
        text = config.read_text()
        config.write_text(text.replace('"image_token_id": 64', f'"image_token_id": {ids[1]}'))
        self.assertIn(f"token 1 is {ids[1]}, which stands for an image", self.ask(folder, "all", *ids, code=1)[0])
        config.write_text(text)
        if "qwen2_5" in text:
            renamed = {name.replace("model.", "model.language_model.").replace("visual.", "model.visual."): x
                       for name, x in load_file(weights).items()}
            save_file(renamed, weights)

    def sinks(self, model, folder, ids):
        """A capture says what a layer's are, and a variant that sums in another order has them, too."""
        np.save(f"{folder}/ids.npy", ids.flatten().numpy())
        of = ["--tokens", f"{folder}/ids.npy", "--bos", "none"]
        run = [program.program_path()]
        subprocess.run([*run, "capture", folder, "--layer", "1", *of, "-o", f"{folder}/c.h5"], check=True)
        with h5py.File(f"{folder}/c.h5") as file:
            self.near(np.array(file.attrs["score_sinks"].split(), "f8"), model.model.layers[1].self_attn.sinks)
        done = subprocess.run([*run, "eval", folder, *of, "-n", "24", "--windows", "2", "--task", "text:skip=4", "--json", "-v",
                               "full"], check=True, capture_output=True, text=True)
        self.assertLess(json.loads(done.stdout.split("\n")[0])["kl"], 1e-9)

    def test_saved_models(self):
        for name, config in MODELS.items():
            with self.subTest(name), tempfile.TemporaryDirectory() as folder, torch.no_grad():
                encoder = config.model_type in ("bert", "modernbert")
                model = made(config, encoder)
                model.save_pretrained(folder)
                ids = torch.randint(3, 64, (3, LENGTHS[0]), generator=torch.Generator().manual_seed(1))
                if hasattr(config, "vision_config"):
                    self.images(folder, ids[0].tolist())
                if name == "gpt-oss":
                    self.sinks(model, folder, ids)
                if encoder:
                    self.encoder(model, folder, ids)
                else:
                    self.decoder(model, folder, ids, name != "phi3 longrope")

    def test_gguf(self):
        for name, config in IN_GGUF.items():
            with self.subTest(name), tempfile.TemporaryDirectory() as folder, torch.no_grad():
                model = made(config, False)
                write_gguf(f"{folder}/m.gguf", model)
                ids = torch.randint(3, 64, (3, LENGTHS[0]), generator=torch.Generator().manual_seed(1))
                self.decoder(model, f"{folder}/m.gguf", ids, True)


if __name__ == "__main__":
    unittest.main()
