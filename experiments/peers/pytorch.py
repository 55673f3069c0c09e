"""PyTorch as a peer: scaled_dot_product_attention (2.0 and later), else softmax(Q K^T) V, one head at a time."""
import ast
import ctypes
import sys
import time

try:
    import torch
except ImportError:
    torch = None


def read_npy(path):
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(10)[8:], "little")
        header = ast.literal_eval(file.read(length).decode("latin1"))
        data = torch.frombuffer(bytearray(file.read()), dtype=torch.float32)
        return data.reshape(header["shape"])


def write_npy(path, tensor):
    tensor = tensor.contiguous()
    header = repr({"descr": "<f4", "fortran_order": False, "shape": tuple(tensor.shape)})
    header += " " * (-(len(header) + 11) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode())
        file.write(ctypes.string_at(tensor.data_ptr(), 4 * tensor.numel()))


def fused(q, k, v, hidden):
    causal = hidden is not None
    return torch.nn.functional.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=causal)[0]


def textbook(q, k, v, hidden):
    o = torch.empty_like(v)
    for head in range(len(q)):
        s = (q[head] * q.shape[2] ** -0.5) @ k[head].T
        if hidden is not None:
            s.masked_fill_(hidden, -float("inf"))
        torch.mm(torch.softmax(s, -1), v[head], out=o[head])
    return o


class Peer:
    def load(self, causal, threads, directory):
        if torch is None:
            raise RuntimeError("not installed")
        torch.set_num_threads(int(threads))
        torch.set_grad_enabled(False)
        self.tensors = [read_npy(f"{directory}/{name}.npy") for name in "qkv"]
        n = self.tensors[0].shape[1]
        self.hidden = torch.ones(n, n, dtype=torch.bool).triu_(1) if causal == "1" else None
        self.compute = fused if hasattr(torch.nn.functional, "scaled_dot_product_attention") else textbook
        name = "scaled_dot_product_attention" if self.compute is fused else "softmax(QK^T)V"
        return f"PyTorch {torch.__version__} {name}"

    def run(self):
        start = time.perf_counter()
        self.o = self.compute(*self.tensors, self.hidden)
        return time.perf_counter() - start

    def save(self, path):
        write_npy(path, self.o)
        return ""

    def answer(self, line):
        request, _, rest = line.partition(" ")
        if request == "load":
            return self.load(*rest.split(" ", 2))
        return {"run": self.run, "save": lambda: self.save(rest)}[request]()


peer = Peer()
for line in sys.stdin:
    try:
        reply = f"ok {peer.answer(line.rstrip(chr(10)))}"
    except Exception as error:
        reply = f"no {str(error).splitlines()[0]}"
    print(reply, flush=True)
