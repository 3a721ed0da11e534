"""GGUF files for the shell tests, built byte by byte: python3 gguf_bytes.py FOLDER writes the good and the broken ones there."""
import os, struct, sys, zlib

U32, I32, F32, STR, ARR, U16 = 4, 5, 6, 8, 9, 2
T_F32, T_F16, T_Q8_0, T_Q4_K = 0, 1, 8, 12


def s(text):
    raw = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(raw)) + raw


def kv(key, kind, raw):
    return s(key) + struct.pack("<I", kind) + raw


def array(kind, raws):
    return struct.pack("<IQ", kind, len(raws)) + b"".join(raws)


def pad(raw):
    return raw + bytes(-len(raw) % 32)


def gguf(kvs, tensors):
    """tensors: (name, dims, type, bytes); offsets follow."""
    header = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(kvs)) + b"".join(kvs)
    offset = 0
    for name, dims, kind, raw in tensors:
        header += s(name) + struct.pack("<I", len(dims)) + struct.pack("<%dQ" % len(dims), *dims) + struct.pack("<IQ", kind, offset)
        offset += len(pad(raw))
    return pad(header) + b"".join(pad(raw) for _, _, _, raw in tensors)


def q8_0(n_blocks, scale_bits=0x3C00):
    return b"".join(struct.pack("<H", scale_bits) + bytes(range(32)) for _ in range(n_blocks))


def model(edit=None):
    """Two layers, four tokens: the least that inspect and verify have something to say about."""
    kvs = {
        "general.architecture": (STR, s("llama")),
        "general.name": (STR, s("Tiny \u00e9\n")),
        "general.file_type": (U32, struct.pack("<I", 7)),
        "llama.block_count": (U32, struct.pack("<I", 2)),
        "tokenizer.ggml.tokens": (ARR, array(STR, [s("a"), s("b"), s("\"c"), s(b"\xff")])),
        "tokenizer.ggml.scores": (ARR, array(F32, [struct.pack("<f", -i) for i in range(4)])),
        "many": (ARR, array(I32, [struct.pack("<i", i) for i in range(20)])),
    }
    tensors = {
        "token_embd.weight": ([64, 4], T_Q8_0, q8_0(8)),
        "blk.0.ffn_down.weight": ([256, 2], T_Q4_K, (struct.pack("<HH", 0x3C00, 0x3800) + bytes(140)) * 2),
        "blk.1.ffn_down.weight": ([64, 2], T_F16, struct.pack("<128H", *([0x3555] * 128))),
        "output_norm.weight": ([64], T_F32, struct.pack("<64f", *([1.0] * 64))),
    }
    crcs = [struct.pack("<I", zlib.crc32(raw)) for _, _, raw in tensors.values()]
    kvs["halftone.tensor_crc32"] = (ARR, array(U32, crcs))
    if edit:
        edit(kvs, tensors)
    return gguf([kv(k, *v) for k, v in kvs.items()], [(n, *t) for n, t in tensors.items()])


def splice(raw, at, new):
    return raw[:at] + new + raw[at + len(new):]


def bad_scale(kvs, tensors):
    dims, kind, raw = tensors["token_embd.weight"]
    raw = splice(splice(raw, 34 * 3, b"\x00\x7e"), 34 * 5, b"\x00\x7c")  # NaN, Inf
    tensors["token_embd.weight"] = (dims, kind, raw)
    kvs.pop("halftone.tensor_crc32")


def bad_dmin(kvs, tensors):
    dims, kind, raw = tensors["blk.0.ffn_down.weight"]
    tensors["blk.0.ffn_down.weight"] = (dims, kind, splice(raw, 146, b"\x00\xfc"))
    kvs.pop("halftone.tensor_crc32")


def flipped_bit(kvs, tensors):
    dims, kind, raw = tensors["blk.1.ffn_down.weight"]
    tensors["blk.1.ffn_down.weight"] = (dims, kind, splice(raw, 100, b"\x54"))


def bad_float(kvs, tensors):
    dims, kind, raw = tensors["output_norm.weight"]
    tensors["output_norm.weight"] = (dims, kind, splice(raw, 4 * 9, struct.pack("<f", float("inf"))))
    kvs.pop("halftone.tensor_crc32")


def overflow(kvs, tensors):  # a finite Q8_K scale (type 15) whose products leave f32: only --deep can see it
    tensors["blk.1.ffn_down.weight"] = ([256], 15, struct.pack("<f", 3e38) + bytes([127] * 256) + bytes(32))
    kvs.pop("halftone.tensor_crc32")


def bad_metadata(kvs, tensors):
    kvs["tokenizer.ggml.scores"] = (ARR, array(0, [b"\x01"] * 4))
    kvs["llama.block_count"] = (U32, struct.pack("<I", 3))
    kvs["halftone.tensor_crc32"] = (ARR, array(U32, [struct.pack("<I", 0)] * 3))
    kvs["tokenizer.ggml.tokens"] = (ARR, array(STR, [s("t%d" % i) for i in range(5)]))


def parts():
    for no in range(3):
        kvs = [kv("split.no", U16, struct.pack("<H", no)), kv("split.count", U16, struct.pack("<H", 3)),
               kv("split.tensors.count", I32, struct.pack("<i", 3))]
        yield gguf(([kv("general.architecture", STR, s("llama"))] if no == 0 else []) + kvs, [("t%d" % no, [32], T_Q8_0, q8_0(1))])


def main(folder):
    files = {"good": model(), "no_crc": model(lambda k, t: k.pop("halftone.tensor_crc32"))}
    for edit in (bad_scale, bad_dmin, flipped_bit, bad_float, overflow, bad_metadata):
        files[edit.__name__] = model(edit)
    files["cut"] = files["good"][:-65]
    files["joined"] = files["good"] * 2
    for no, raw in enumerate(parts()):
        files["split-%05d-of-00003" % (no + 1)] = raw
    for name, raw in files.items():
        with open(os.path.join(folder, name + ".gguf"), "wb") as f:
            f.write(raw)


if __name__ == "__main__":
    main(sys.argv[1])
