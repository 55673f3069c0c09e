#!/usr/bin/python3
"""published.py ATTNLAB MODELS GOLDEN [--write] - published models against NumPy (forward.py), and against the numbers that
NumPy gave before: the 100 tokens that stories15M generates greedily, and logits of stories15M and MiniMind2.

Of TinyLlama, 1.1 G parameters in blocks of 2 to 5 bits, NumPy was asked once: the mean negative log-likelihood of the
opening of Debian's /usr/share/common-licenses/GPL-3. MODELS holds what data/models/get.sh fetched. Exit code 77: no NumPy, or no model is there."""
import hashlib
import json
import pathlib
import struct
import subprocess
import sys

try:
    import numpy as np
except ImportError:
    print("published.py: no NumPy: published models are not computed again")
    sys.exit(77)

sys.dont_write_bytecode = True
import forward

PROMPTS = {"stories15m": [1], "minimind2": [1, 5, 1000, 2000, 3000, 77, 4000, 5999]}
GREEDY, SHOWN = 100, 16


def read(directory):
    """config.json, and the tensors of model.safetensors (F16) by name."""
    config = json.loads((directory / "config.json").read_text())
    data = np.memmap(directory / "model.safetensors", np.uint8, "r")
    length = struct.unpack("<Q", data[:8].tobytes())[0]
    header = json.loads(data[8 : 8 + length].tobytes())

    def tensor(name):
        at, end = header[name]["data_offsets"]
        assert header[name]["dtype"] == "F16"
        return data[8 + length + at : 8 + length + end].view("<f2").reshape(header[name]["shape"])

    return config, {name: np.array(tensor(name), np.float64) for name in header if name != "__metadata__"}


def golden(directory, prompt, greedy):
    config, tensors = read(directory)
    model = forward.Decoder(config, tensors.__getitem__)
    logits = model.forward(prompt)
    made = {"prompt": prompt, "logits": [float(f"{z:.7g}") for z in logits[-1][:SHOWN]]}
    if greedy:
        made["greedy"] = [int(logits[-1].argmax())]
        while len(made["greedy"]) < greedy:
            made["greedy"].append(int(model.forward(made["greedy"][-1:])[-1].argmax()))
    return made


def ask(program, directory, prompt, count):
    """The program's logits after the prompt, and its own greedy continuation."""
    said = subprocess.run([program, str(directory), str(count), *map(str, prompt)], check=True, capture_output=True,
                          text=True).stdout.split("\n")
    return np.array(said[0].split(), np.float64), [int(token) for token in said[1].split()]


def check_text(program, model, kept):
    """The program's mean negative log-likelihood of a text that every Debian has, within 1 % of NumPy's."""
    text = pathlib.Path(kept["text"])
    if not model.exists() or not text.exists() or hashlib.sha256(text.read_bytes()).hexdigest() != kept["sha256"]:
        print(f"published.py: {model} or its text {text} is not there: NOT TRIED")
        return
    said = subprocess.run([program, str(model), str(text), str(kept["n"])], check=True, capture_output=True, text=True)
    nll = float(said.stdout.split("\n")[1])
    assert abs(nll - kept["nll"]) <= 0.01 * kept["nll"], f"tinyllama: {nll} nats a token, NumPy: {kept['nll']}"
    print(f"tinyllama: {nll:.6f} nats a token, NumPy {kept['nll']:.6f}")


def main():
    program, models, path = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    here = {name: prompt for name, prompt in PROMPTS.items() if (models / name).is_dir()}
    for name in PROMPTS.keys() - here.keys():
        print(f"published.py: {models / name} is not there (data/models/get.sh {name}): NOT TRIED")
    kept = json.loads(path.read_text()) if path.exists() else {}
    if not here and not (models / "tinyllama").is_dir():
        sys.exit(77)
    for name, prompt in here.items():
        greedy = GREEDY if name == "stories15m" else 0
        made = golden(models / name, prompt, greedy)
        if sys.argv[4:] == ["--write"]:
            kept[name] = made
            continue
        logits, tokens = ask(program, models / name, prompt, greedy)
        apart = np.abs(logits[:SHOWN] - made["logits"]).max()
        # The model's weights are of half precision, its sums of single: 1e-4 of logits of about 10.
        assert apart <= 1e-3, f"{name}: logits differ by {apart}"
        assert np.abs(np.array(kept[name]["logits"]) - made["logits"]).max() <= 1e-5, f"{name}: NumPy gives others"
        assert tokens == made.get("greedy", []) == kept[name].get("greedy", []), f"{name}: generates other tokens: {tokens}"
        print(f"{name}: logits within {apart:.2g}, {len(tokens)} tokens of greedy continuation the same")
    if sys.argv[4:] != ["--write"]:
        check_text(program, models / "tinyllama" / "model.gguf", kept["tinyllama"])
    else:
        path.write_text("{" + ",\n".join(f'"{name}": {json.dumps(value)}' for name, value in kept.items()) + "}\n")


main()
