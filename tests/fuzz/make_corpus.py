#!/usr/bin/env python3
"""Writes the seed corpora of the fuzz targets: small cut-outs of checkpoints that real tools wrote.

usage: make_corpus.py FIXTURES_DIR     (fills corpus/ beside this script; standard library only)

A cut-out keeps one quantized module: the leading corner of each of its tensors, its configuration and its names.
"""
import json
import math
import pathlib
import struct
import sys

HERE = pathlib.Path(__file__).resolve().parent
BITS = {"F16": 16, "BF16": 16, "F32": 32, "I32": 32, "I64": 64, "I8": 8, "U8": 8, "F8_E4M3": 8}
DOWN = "model.layers.0.mlp.down_proj."
# fixture: {tensor: (new shape, bytes or None for the corner of the stored ones)}
CUTS = {
    "gptq_b4_g32_bias_odd": {DOWN + "qweight": [8, 16], DOWN + "qzeros": [2, 2], DOWN + "scales": [2, 16], DOWN + "g_idx": [64]},
    "gptq_v2_b4_g32_sym": {DOWN + "qweight": [8, 16], DOWN + "qzeros": [2, 2], DOWN + "scales": [2, 16], DOWN + "g_idx": [64]},
    "awq_b4_g32_odd": {DOWN + "qweight": [64, 2], DOWN + "qzeros": [2, 2], DOWN + "scales": [2, 16]},
    "ct_w4a16_g128_asym": {DOWN + "weight_packed": [16, 16], DOWN + "weight_scale": [16, 1], DOWN + "weight_zero_point": [2, 1],
                           DOWN + "weight_shape": struct.pack("<qq", 16, 128)},
    "ct_int8_w8a16_asym": {DOWN + "weight": [16, 32], DOWN + "weight_scale": [16, 1], DOWN + "weight_zero_point": [16, 1]},
    "ct_nvfp4a16": {DOWN + "weight_packed": [16, 16], DOWN + "weight_scale": [16, 2], DOWN + "weight_global_scale": [1]},
    "ct_mxfp4a16": {DOWN + "weight_packed": [16, 16], DOWN + "weight_scale": [16, 1]},
    "modelopt_w4a16_nvfp4": {DOWN + "weight": [16, 16], DOWN + "weight_scale": [16, 2], DOWN + "weight_scale_2": []},
    "modelopt_mxfp4_mlp_only": {DOWN + "weight": [16, 16], DOWN + "weight_scale": [16, 1]},
    "gptoss_mxfp4_wide_exponents": {"model.layers.0.mlp.experts.down_proj_blocks": [2, 8, 1, 16],
                                    "model.layers.0.mlp.experts.down_proj_scales": [2, 8, 1],
                                    "model.layers.0.mlp.experts.down_proj_bias": [2, 8]},
}
# fixture file: tensors kept, two rows of each
GGUFS = {
    "gguf_types_llama/model.gguf": ["blk.0.attn_q.weight", "blk.0.attn_k.weight", "blk.0.attn_v.weight", "blk.0.ffn_down.weight"],
    "gguf_q4_1_llama_tied/model.gguf": ["blk.0.attn_q.weight", "token_embd.weight", "rope_freqs.weight"],
    "gguf_nvfp4_llama/model.gguf": ["blk.0.attn_q.weight", "blk.0.attn_q.scale"],
    "gguf_mxfp4_moe/model.gguf": ["blk.0.ffn_down_exps.weight"],
    "gguf_split_q8_0/model-00001-of-00003.gguf": None,
}
BLOCKS = {0: (4, 1), 1: (2, 1), 2: (18, 32), 3: (20, 32), 6: (22, 32), 7: (24, 32), 8: (34, 32), 10: (84, 256), 11: (110, 256), 12: (144, 256),
          13: (176, 256), 14: (210, 256), 20: (18, 32), 30: (2, 1), 39: (17, 32), 40: (36, 64)}


def corner(raw, shape, cut, size):
    """The leading corner `cut` of a row-major array of elements of `size` bytes."""
    if not shape:
        return raw
    if len(shape) == 1:
        return raw[:cut[0] * size]
    stride = math.prod(shape[1:]) * size
    return b"".join(corner(raw[i * stride:(i + 1) * stride], shape[1:], cut[1:], size) for i in range(cut[0]))


def safetensors(path, cuts):
    b = path.read_bytes()
    n = struct.unpack("<Q", b[:8])[0]
    header, out, data = json.loads(b[8:8 + n]), {}, b""
    for name, cut in cuts.items():
        entry = header[name]
        begin, end = entry["data_offsets"]
        raw = cut if isinstance(cut, bytes) else corner(b[8 + n + begin:8 + n + end], entry["shape"], cut, BITS[entry["dtype"]] // 8)
        shape = entry["shape"] if isinstance(cut, bytes) else cut
        out[name] = {"dtype": entry["dtype"], "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps({"__metadata__": header.get("__metadata__") or {}, **out}, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


class Gguf:
    SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}

    def __init__(self, path):
        self.b, self.at = path.read_bytes(), 4
        _, tensors, keys = self.take("IQQ")
        self.keys, self.tensors = [], []
        for _ in range(keys):
            start, name = self.at, self.string()
            self.value(self.take("I")[0])
            self.keys.append((name, self.b[start:self.at]))
        for _ in range(tensors):
            name, dims = self.string(), []
            dims = list(self.take("%dQ" % self.take("I")[0]))
            self.tensors.append((name, dims, *self.take("IQ")))
        self.data = (self.at + 31) // 32 * 32

    def take(self, form):
        values = struct.unpack_from("<" + form, self.b, self.at)
        self.at += struct.calcsize("<" + form)
        return values

    def string(self):
        n = self.take("Q")[0]
        self.at += n
        return self.b[self.at - n:self.at].decode()

    def value(self, kind):
        if kind == 8:
            self.string()
        elif kind == 9:
            element, count = self.take("IQ")
            for _ in range(count):
                self.value(element)
        else:
            self.at += self.SIZES[kind]

    def cut(self, names):
        """Keys but the large ones; of the named tensors (None: the first two) at most two rows a matrix and two matrices."""
        keys = [raw for name, raw in self.keys if len(raw) < 200 and name != "split.count"]
        infos, data = b"", b""
        kept = [t for t in self.tensors if names is None or t[0] in names][:4 if names else 2]
        for name, dims, kind, offset in kept:
            size, elements = BLOCKS[kind]
            small = [dims[0]] + [min(2, d) for d in dims[1:]]
            row = dims[0] // elements * size
            raw = corner(self.b[self.data + offset:self.data + offset + math.prod(dims[1:]) * row], dims[:0:-1] + [row], small[:0:-1] + [row], 1)
            data += b"\0" * (-len(data) % 32)
            infos += struct.pack("<Q", len(name)) + name.encode() + struct.pack("<I", len(small)) + struct.pack("<%dQ" % len(small), *small)
            infos += struct.pack("<IQ", kind, len(data))
            data += raw
        if names is None:  # the first of two parts
            keys.append(struct.pack("<Q", 11) + b"split.count" + struct.pack("<IH", 2, 2))
        head = b"GGUF" + struct.pack("<IQQ", 3, len(kept), len(keys)) + b"".join(keys) + infos
        return head + b"\0" * (-len(head) % 32) + data


def main():
    fixtures = pathlib.Path(sys.argv[1])

    def put(target, name, raw):
        folder = HERE / "corpus" / f"fuzz_{target}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(raw)

    def whole(config, weights):
        return struct.pack("<H", len(config)) + config + weights

    for name, cuts in CUTS.items():
        config = json.loads((fixtures / name / "config.json").read_text())
        keep = ("model_type", "quantization_config", "architectures", "hidden_size", "num_hidden_layers", "num_local_experts")
        small = json.dumps({k: v for k, v in config.items() if k in keep}, separators=(",", ":")).encode()
        weights = safetensors(fixtures / name / "model.safetensors", cuts)
        put("checkpoint", name, whole(small, weights))
        put("safetensors", name, weights)
        put("json", name, small)
    for path, names in GGUFS.items():
        raw = Gguf(fixtures / path).cut(names)
        put("gguf", path.split("/")[0], raw)
        if names is not None:  # a checkpoint is one file here
            put("checkpoint", path.split("/")[0], whole(b"", raw))
    index = json.loads((fixtures / "ct_w4a16_g32_sharded" / "model.safetensors.index.json").read_text())
    index["weight_map"] = {"x": "a.safetensors", "y": "a.safetensors", "z": "b.safetensors"}
    put("index", "two_shards", json.dumps(index, indent=2).encode())
    index["weight_map"].pop("y")
    put("index", "unlisted", json.dumps(index).encode())


main()
