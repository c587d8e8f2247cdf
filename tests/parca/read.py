"""Reads files of recordings with an Arrow of its own, and says of each how many batches it has and the sum of their values.

With `--function=NAME` it prints the frames of this function instead, each once. What is wrong with a file ends it: a record
that is not valid throughout, or a sample without its stack."""

import io
import json
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


def text(value):
    return value.decode() if isinstance(value, bytes) else value


def frames_of(function, samples, stacks):
    """With equal names for the columns of both schemas."""
    for locations in (samples["stacktrace"] if stacks is None else stacks["locations"]).to_pylist():
        for frame in locations:
            for line in frame["lines"] or []:
                inside = line.get("function") or {
                    "system_name": line.get("function_name"),
                    "filename": line.get("function_filename"),
                    "start_line": line.get("function_start_line"),
                }
                if text(inside["system_name"]) == function:
                    yield json.dumps({
                        "type": text(frame["frame_type"]),
                        "mapping": text(frame["mapping_file"]),
                        "build_id": text(frame["mapping_build_id"]),
                        "file": text(inside["filename"]),
                        "line": line["line"],
                        "start_line": inside["start_line"],
                    })


paths, function, shown = sys.argv[1:], None, set()
if paths[0].startswith("--function="):
    function = paths.pop(0).split("=", 1)[1]
for path in paths:
    known, batches, total = set(), 0, 0
    compression = "zstd" if path.endswith(".zst") else None
    with pyarrow.input_stream(path, compression=compression) as file:
        data = file.read()
    for samples, stacks in frames(data):
        batches += 1
        total += sum(samples["value"].to_pylist())
        if stacks is None:
            assert all(samples["stacktrace"].to_pylist()), "a sample has no frames"
            shown.update(frames_of(function, samples, stacks) if function else [])
            continue
        known.update(stacks["stacktrace_id"].to_pylist())
        missing = set(values_of_runs(samples["stacktrace_id"])) - known
        assert not missing, missing
        for locations in stacks["locations"].to_pylist():
            assert all(frame["mapping_file"] is not None for frame in locations)
        shown.update(frames_of(function, samples, stacks) if function else [])
    if not function:
        print(batches, total)
for frame in sorted(shown):
    print(frame)
