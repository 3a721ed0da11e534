"""check_gguf_python.py write FILE | compare THEIRS OURS | compare-json THEIRS INSPECT.json: see gguf_python.sh."""
import json, sys
import numpy as np
import gguf

V = gguf.GGUFValueType
SCALARS = {
    "uint8": (200, V.UINT8), "int8": (-100, V.INT8), "uint16": (60000, V.UINT16), "int16": (-30000, V.INT16), "uint32": (4000000000, V.UINT32),
    "int32": (-2000000000, V.INT32), "float32": (0.1, V.FLOAT32), "true": (True, V.BOOL), "false": (False, V.BOOL),
    "string": ("h\u00e9 \U0001f4be\n\"x\"", V.STRING), "uint64": (2**63 + 5, V.UINT64), "int64": (-(2**62) - 1, V.INT64), "float64": (0.1, V.FLOAT64),
}
ARRAYS = {
    "uint8": [1, 2, 255], "int8": [-1, 0, 127], "uint16": [1, 65535], "int16": [-1, 1], "uint32": [2**32 - 1, 7], "int32": [-5, 5, 6],
    "float32": [1.5, -0.25, 3e38], "bool": [True, False, True], "string": ["", "a", "\u0120b"], "uint64": [2**64 - 1], "int64": [-(2**63)], "float64": [1e300, 5e-324],
}


def write(path):
    w = gguf.GGUFWriter(path, "llama")
    w.add_name("peer")
    w.add_block_count(1)
    for name, (value, kind) in SCALARS.items():
        w.add_key_value("scalar." + name, value, kind)
    for name, values in ARRAYS.items():
        w.add_key_value("array." + name, values, V.ARRAY, sub_type=V[name.upper()])
    rng = np.random.default_rng(1)
    x = rng.standard_normal((6, 256)).astype(np.float32)
    w.add_tensor("token_embd.weight", x)
    w.add_tensor("blk.0.attn_q.weight", x.astype(np.float16))
    w.add_tensor("blk.0.attn_norm.weight", x[0])
    w.add_tensor("blk.0.cube.weight", x.reshape(2, 3, 256))
    for kind in (gguf.GGMLQuantizationType.Q8_0, gguf.GGMLQuantizationType.Q4_0, gguf.GGMLQuantizationType.BF16):
        w.add_tensor("blk.0.%s.weight" % kind.name.lower(), gguf.quants.quantize(x, kind), raw_dtype=kind)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def fields(path):
    reader = gguf.GGUFReader(path)
    return {k: ([t.name for t in f.types], f.contents()) for k, f in reader.fields.items() if not k.startswith("GGUF.")}, reader.tensors


def compare(theirs, ours):
    a, ta = fields(theirs)
    b, tb = fields(ours)
    own = {k for k in b if k.startswith("halftone.")} | {"general.file_type", "general.quantization_version"}
    assert set(a) - own == set(b) - own, set(a) ^ set(b)
    for key in set(a) - own:
        assert a[key] == b[key], (key, a[key], b[key])
    assert b["halftone.tensor_crc32"][0] == ["ARRAY", "UINT32"]
    assert [t.name for t in ta] == [t.name for t in tb]
    for x, y in zip(ta, tb):
        assert x.tensor_type == y.tensor_type and list(x.shape) == list(y.shape) and np.array_equal(x.data.view(np.uint8), y.data.view(np.uint8)), x.name
    print("%d keys and %d tensors agree" % (len(a), len(ta)))


def compare_json(theirs, path):
    a, tensors = fields(theirs)
    report = json.load(open(path))
    names = {"u8": "UINT8", "i8": "INT8", "u16": "UINT16", "i16": "INT16", "u32": "UINT32", "i32": "INT32", "f32": "FLOAT32", "bool": "BOOL",
             "string": "STRING", "u64": "UINT64", "i64": "INT64", "f64": "FLOAT64"}
    pairs = {p["key"]: p for p in report["metadata"]}
    assert list(pairs) == list(a)
    for key, (types, value) in a.items():
        p = pairs[key]
        assert names[p["type"]] == types[-1] and ("values" in p) == (types[0] == "ARRAY"), key
        found = p["values"] if "values" in p else [p["value"]]
        expected = value if isinstance(value, list) else [value]
        if p["type"] in ("u64", "i64"):  # beyond 2^53 they are texts
            found = [int(x) for x in found]
        if p["type"] == "f32":
            found, expected = [np.float32(x) for x in found], [np.float32(x) for x in expected]
        assert found == expected, (key, found, expected)
    raw = open(theirs, "rb").read()
    assert [t["name"] for t in report["tensors"]] == [t.name for t in tensors]
    for t, peer in zip(report["tensors"], tensors):
        assert t["type"] == peer.tensor_type.name and t["shape"] == list(peer.shape) and t["offset_bytes"] == peer.data_offset
        assert raw[t["offset_bytes"]:][:t["n_bytes"]] == peer.data.tobytes()
    print("%d keys and %d tensors agree with inspect" % (len(a), len(tensors)))


if __name__ == "__main__":
    {"write": write, "compare": compare, "compare-json": compare_json}[sys.argv[1]](*sys.argv[2:])
