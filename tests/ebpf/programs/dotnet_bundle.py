"""Makes a program that runs .NET without an installation of it: dotnet_bundle.py HOST ASSEMBLY OUTPUT LIBRARIES NAME...

HOST is a published single-file program. OUTPUT has its runtime and libraries, but ASSEMBLY instead of its main assembly. Each library
NAME that it lacks is copied from LIBRARIES, another single-file program."""

import json
import os
import struct
import sys

# Follows the offset of the list of files.
SIGNATURE = bytes.fromhex("8b1202b96a612038727b930214d7a03213f5b9e6efae3318ee3b2dce24b36aae")
ASSEMBLY, DEPENDENCIES, SETTINGS = 1, 3, 4
HEAD = "<IIi"
# Offset, size, size if compressed (0 if not), kind.
ENTRY = "<qqqB"
SETTINGS_SUFFIX = ".runtimeconfig.json"


class Program:
    def __init__(self, path):
        with open(path, "rb") as file:
            self.bytes = bytearray(file.read())
        self.place = self.bytes.find(SIGNATURE) - 8
        (self.at,) = struct.unpack_from("<q", self.bytes, self.place)
        self.major, self.minor, count = self.numbers(HEAD)
        self.id = self.text()
        self.at += 40
        self.files = {}
        for _ in range(count):
            file = self.numbers(ENTRY)
            self.files[self.text()] = file

    def numbers(self, layout):
        self.at += struct.calcsize(layout)
        return struct.unpack_from(layout, self.bytes, self.at - struct.calcsize(layout))

    def text(self):
        size = shift = 0
        while True:
            byte = self.bytes[self.at]
            self.at += 1
            size |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        self.at += size
        return self.bytes[self.at - size : self.at].decode()

    def content(self, name):
        offset, size, compressed, _ = self.files[name]
        assert compressed == 0, name
        return bytes(self.bytes[offset : offset + size])

    def name_of(self, kind):
        return next(name for name, file in self.files.items() if file[-1] == kind)

    def put(self, name, content, kind):
        # Assemblies are mapped.
        self.bytes.extend(bytes(-len(self.bytes) % 4096))
        self.files[name] = (len(self.bytes), len(content), 0, kind)
        self.bytes.extend(content)

    def write(self, path):
        start = len(self.bytes)
        self.bytes += struct.pack(HEAD, self.major, self.minor, len(self.files)) + encoded(self.id)
        for kind in DEPENDENCIES, SETTINGS:
            self.bytes += struct.pack("<qq", *self.files[self.name_of(kind)][:2])
        self.bytes += struct.pack("<Q", 0)
        for name, file in self.files.items():
            self.bytes += struct.pack(ENTRY, *file) + encoded(name)
        struct.pack_into("<q", self.bytes, self.place, start)
        with open(path, "wb") as file:
            file.write(self.bytes)
        os.chmod(path, 0o755)


def encoded(text):
    text = text.encode()
    size, head = len(text), b""
    while size >= 128:
        head += bytes([size & 127 | 128])
        size >>= 7
    return head + bytes([size]) + text


def main(host, assembly, output, libraries, *names):
    program = Program(host)
    main_assembly = program.name_of(SETTINGS).removesuffix(SETTINGS_SUFFIX) + ".dll"
    with open(assembly, "rb") as file:
        program.put(main_assembly, file.read(), ASSEMBLY)
    dependencies = json.loads(program.content(program.name_of(DEPENDENCIES)))
    packs = dependencies["targets"][dependencies["runtimeTarget"]["name"]]
    framework = next(pack for name, pack in packs.items() if name.startswith("runtimepack.Microsoft.NETCore.App."))
    for name in names:
        if name not in program.files:
            program.put(name, Program(libraries).content(name), ASSEMBLY)
            framework.setdefault("runtime", {})[name] = {}
    program.put(program.name_of(DEPENDENCIES), json.dumps(dependencies).encode(), DEPENDENCIES)
    program.write(output)


main(*sys.argv[1:])
