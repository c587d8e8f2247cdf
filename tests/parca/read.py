"""Reads files of recordings with an Arrow of its own, and says of each how many batches it has and the sum of their values.

What is wrong with a file ends it: a record that is not valid throughout, or a sample without its stack."""

import io
import struct
import sys

import pyarrow


def frames(data):
    magic, version, count = struct.unpack(">4sHH", data[:8])
    assert (magic, version) == (b"\xa6\xe7\xcc\xca", 0), data[:8]
    data = io.BytesIO(data[8:])
    for _ in range(count):
        samples = frame(data)
        has_stacks = samples.schema.metadata[b"parca_write_schema_version"] == b"v1"
        yield samples, frame(data) if has_stacks else None
    assert not data.read(), "something stands behind the last batch"


def frame(data):
    (length,) = struct.unpack(">I", data.read(4))
    record = data.read(length)
    assert len(record) == length
    table = pyarrow.ipc.open_stream(record).read_all()
    table.validate(full=True)
    return table


def values_of_runs(column):
    for chunk in column.chunks:
        yield from chunk.values.to_pylist()


for path in sys.argv[1:]:
    known, batches, total = set(), 0, 0
    compression = "zstd" if path.endswith(".zst") else None
    with pyarrow.input_stream(path, compression=compression) as file:
        data = file.read()
    for samples, stacks in frames(data):
        batches += 1
        total += sum(samples["value"].to_pylist())
        if stacks is None:
            assert all(samples["stacktrace"].to_pylist()), "a sample has no frames"
            continue
        known.update(stacks["stacktrace_id"].to_pylist())
        missing = set(values_of_runs(samples["stacktrace_id"])) - known
        assert not missing, missing
        for locations in stacks["locations"].to_pylist():
            assert all(frame["mapping_file"] is not None for frame in locations)
    print(batches, total)
