#!/usr/bin/env bash
# Sizes past 4 GiB (bad-inputs K12 67): a sparse F16 GGUF with one matrix of 4096 x 600000 becomes Q4_0 with eight threads; offsets, sizes and
# every byte are right, and memory stays what it is for a small model. Needs 2 GB of disk.
source "$HT_SOURCE/tests/cli/lib.sh"
free_kb=$(df --output=avail -k . | tail -1)
[ "$free_kb" -gt 3000000 ] || { echo "skipped: needs 3 GB of free disk, has $((free_kb / 1024)) MB"; exit 77; }
python3 - <<'PY'
import struct
def s(x): return struct.pack("<Q", len(x)) + x.encode()
def kv_str(k, v): return s(k) + struct.pack("<I", 8) + s(v)
n_rows, n_cols = 600000, 4096
data = n_rows * n_cols * 2
tail = struct.pack("<4f", 1.5, -2.25, 0.0, 4096.0)
head = b"GGUF" + struct.pack("<IQQ", 3, 2, 1) + kv_str("general.architecture", "llama")
head += s("big.weight") + struct.pack("<IQQIQ", 2, n_cols, n_rows, 1, 0)
head += s("tail") + struct.pack("<IQIQ", 1, 4, 0, data)
head += bytes(-len(head) % 32)
with open("big.gguf", "wb") as f:
    f.write(head)
    f.seek(len(head) + data)
    f.write(tail + bytes(16))
PY
expect 0 -- "$HALFTONE" quantize big.gguf -t Q4_0 -o small.gguf --threads 8 --json
python3 - <<'PY' || fail "the large tensor"
import json, os, struct
d = json.load(open("out.txt"))
o = d["outputs"][0]
big, tail = o["tensors"]
assert big["n_bytes"] == 600000 * 4096 // 32 * 18 and os.path.getsize("small.gguf") == o["n_bytes"]
assert d["peak_rss_bytes"] < 200 << 20, d["peak_rss_bytes"]
with open("small.gguf", "rb") as f:
    f.seek(tail["offset_bytes"])
    assert struct.unpack("<4f", f.read(16)) == (1.5, -2.25, 0.0, 4096.0)
    for at in (0, 1 << 30, big["n_bytes"] - 18):        # zero blocks: scale 0, codes of the value 0
        f.seek(big["offset_bytes"] + at // 18 * 18)
        assert f.read(2) == b"\0\0"
print(f"peak memory {d['peak_rss_bytes'] / 2**20:.1f} MiB, {d['wall_s']:.1f} s")
PY
expect 0 -- "$HALFTONE" verify small.gguf
finish
