#!/usr/bin/python3
"""convert.py minimind2|stories15m FILE DIRECTORY - a published model as a Hugging Face model directory.

minimind2: FILE is package/onnx/model_quantized.onnx, beside ../config.json. A weight is (w - zero_point) * scale, w in
uint8; the graph says by its nodes' names which layer a product belongs to. stories15m: FILE is llama2.c's data file:
seven int32 (hidden, intermediate, layers, heads, kv_heads, vocabulary, context), then the weights in float32. llama2.c
rotates adjacent components; Hugging Face's layout rotates component i with i + d/2, so rows of Wq and Wk are reordered.
Writes config.json and model.safetensors (F16), and the tokenizer's files that lie beside FILE."""
import json
import pathlib
import shutil
import struct
import sys

import numpy as np


def halves(w, heads):
    """Rows of adjacent rotary pairs in the order of halves."""
    rows, columns = w.shape
    return w.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def minimind2(path):
    import onnx
    from onnx import numpy_helper

    graph = onnx.load(str(path)).graph
    given = {t.name: numpy_helper.to_array(t) for t in graph.initializer}

    def widened(name):
        zero, scale = given[name + "_zero_point"].astype(np.float32), given[name + "_scale"]
        return (given[name + "_quantized"].astype(np.float32) - zero) * scale

    tensors = {"model.embed_tokens.weight": widened("model.embed_tokens.weight")}
    for node in graph.node:
        if node.op_type == "MatMulInteger":  # /model/layers.0/self_attn/q_proj/MatMul_quant
            place = ".".join(node.name.split("/")[1:-1]) + ".weight"
            tensors[place] = widened(node.input[1].removesuffix("_quantized")).T
    del tensors["lm_head.weight"]  # the embedding again: config.json ties them
    tensors.update({k: v for k, v in given.items() if k.endswith("norm.weight")})
    config = json.loads((path.parent.parent / "config.json").read_text())
    return tensors, config, path.parent.parent


def stories15m(path):
    with open(path, "rb") as file:
        hidden, intermediate, layers, heads, kv_heads, vocab, context = struct.unpack("<7i", file.read(28))
        d = hidden // heads

        def read(*shape):
            return np.fromfile(file, "<f4", int(np.prod(shape))).reshape(shape)

        # Their order in the file; gate, down, up are w1, w2, w3.
        shapes = {"input_layernorm": (hidden,), "self_attn.q_proj": (heads * d, hidden),
                  "self_attn.k_proj": (kv_heads * d, hidden), "self_attn.v_proj": (kv_heads * d, hidden),
                  "self_attn.o_proj": (hidden, heads * d), "post_attention_layernorm": (hidden,),
                  "mlp.gate_proj": (intermediate, hidden), "mlp.down_proj": (hidden, intermediate),
                  "mlp.up_proj": (intermediate, hidden)}
        tensors = {"model.embed_tokens.weight": read(vocab, hidden)}
        for name, shape in shapes.items():
            for layer, w in enumerate(read(layers, *shape)):
                if name.endswith(("q_proj", "k_proj")):
                    w = halves(w, heads if name.endswith("q_proj") else kv_heads)
                tensors[f"model.layers.{layer}.{name}.weight"] = w
        tensors["model.norm.weight"] = read(hidden)
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": vocab, "hidden_size": hidden,
              "intermediate_size": intermediate, "num_hidden_layers": layers, "num_attention_heads": heads,
              "num_key_value_heads": kv_heads, "hidden_act": "silu", "max_position_embeddings": context,
              "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": True, "bos_token_id": 1,
              "eos_token_id": 2}
    return tensors, config, None


def write(directory, tensors, config, beside):
    directory.mkdir(parents=True)
    header, blobs, at = {}, [], 0
    for name in sorted(tensors):
        blob = np.ascontiguousarray(tensors[name], "<f2").tobytes()
        header[name] = {"dtype": "F16", "shape": list(tensors[name].shape), "data_offsets": [at, at + len(blob)]}
        blobs.append(blob)
        at += len(blob)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(directory / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.writelines(blobs)
    (directory / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    for name in ("tokenizer.json", "tokenizer_config.json") if beside else ():
        shutil.copyfile(beside / name, directory / name)
    print(f"{sum(t.size for t in tensors.values()):,} parameters, {at:,} bytes")


if len(sys.argv) != 4 or sys.argv[1] not in ("minimind2", "stories15m"):
    sys.exit(__doc__)
read = minimind2 if sys.argv[1] == "minimind2" else stories15m
write(pathlib.Path(sys.argv[3]), *read(pathlib.Path(sys.argv[2])))
