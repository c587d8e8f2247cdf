// Runs generated code: `generated_caller` calls `generated_loop`, both named in a perf map or, with
// the argument `dump`, in a jitdump. With `memfd`, `posix`, `sysv` and `shared` the code is in file-backed memory,
// and except for the last it is mapped twice, like in runtimes that never map memory both writable and
// executable.

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <string>
#include <sys/mman.h>
#include <sys/shm.h>
#include <unistd.h>

// rounds in rdi: push rbp; mov rbp, rsp; 1: dec rdi; jnz 1b; pop rbp; ret
static const uint8_t LOOP[] = {0x55, 0x48, 0x89, 0xe5, 0x48, 0xff, 0xcf, 0x75, 0xfb, 0x5d, 0xc3};
// push rbp; mov rbp, rsp; call rsi; pop rbp; ret
static const uint8_t CALLER[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd6, 0x5d, 0xc3};
static const size_t CALLER_AT = 256;

struct Header {
  uint32_t magic, version, size, machine, unused, pid;
  uint64_t time, flags;
};
struct Load {
  uint32_t kind, size;
  uint64_t time;
  uint32_t pid, thread;
  uint64_t unused, address, bytes, index;
};
struct Lines {
  uint32_t kind, size;
  uint64_t time, code, count;
  uint64_t address;
  uint32_t line, unused;
};

static void add(FILE *file, bool dump, const void *code, size_t bytes, const char *name) {
  auto address = reinterpret_cast<uint64_t>(code);
  if (!dump) {
    fprintf(file, "%lx %zx %s\n", address, bytes, name);
    return;
  }
  static const char SOURCE[] = "made.up";
  Lines lines = {2, sizeof(Lines) + sizeof SOURCE, 0, address, 1, address, 42, 0};
  fwrite(&lines, sizeof lines, 1, file);
  fwrite(SOURCE, sizeof SOURCE, 1, file);
  uint32_t length = sizeof(Load) + strlen(name) + 1 + bytes;
  uint32_t pid = getpid();
  Load load = {0, length, 0, pid, pid, 0, address, bytes, 1};
  fwrite(&load, sizeof load, 1, file);
  fwrite(name, strlen(name) + 1, 1, file);
  fwrite(code, bytes, 1, file);
}

// The writable mapping of the code, and the executable one.
struct Memory {
  void *written, *run;
};

static Memory of_file(int file) {
  if (ftruncate(file, 4096)) return {};
  return {mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0),
          mmap(nullptr, 4096, PROT_READ | PROT_EXEC, MAP_SHARED, file, 0)};
}

static Memory of_kind(const std::string &kind) {
  if (kind == "memfd") return of_file(memfd_create("doublemapper", MFD_CLOEXEC));
  if (kind == "posix") {
    auto name = "/profcol-jit-" + std::to_string(getpid());
    int file = shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
    shm_unlink(name.c_str());
    return of_file(file);
  }
  if (kind == "sysv") {
    int id = shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0700);
    Memory both = {shmat(id, nullptr, 0), shmat(id, nullptr, SHM_EXEC | SHM_RDONLY)};
    shmctl(id, IPC_RMID, nullptr);
    return both;
  }
  int sharing = kind == "shared" ? MAP_SHARED : MAP_PRIVATE;
  auto memory = mmap(nullptr, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, sharing | MAP_ANONYMOUS, -1, 0);
  return {memory, memory};
}

int main(int argc, char **argv) {
  std::string kind = argc > 1 ? argv[1] : "map";
  bool dump = kind == "dump";
  auto [memory, run] = of_kind(kind);
  if (!memory || memory == MAP_FAILED || run == MAP_FAILED) return 1;
  auto written = static_cast<uint8_t *>(memory), code = static_cast<uint8_t *>(run);
  memcpy(written, LOOP, sizeof LOOP);
  memcpy(written + CALLER_AT, CALLER, sizeof CALLER);

  auto pid = std::to_string(getpid());
  auto path = dump ? "/tmp/jit-" + pid + ".dump" : "/tmp/perf-" + pid + ".map";
  FILE *file = fopen(path.c_str(), "w+");
  if (!file) return 1;
  if (dump) {
    Header header = {0x4a695444, 1, sizeof(Header), 62, 0, static_cast<uint32_t>(getpid()), 0, 0};
    fwrite(&header, sizeof header, 1, file);
    fflush(file);
    mmap(nullptr, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fileno(file), 0);
  }
  add(file, dump, code + CALLER_AT, sizeof CALLER, "generated_caller");
  add(file, dump, code, sizeof LOOP, "generated_loop");
  fclose(file);

  auto caller = reinterpret_cast<void (*)(uint64_t, void *)>(code + CALLER_AT);
  while (true) caller(10000000, code);
}
