/* Loads the library of a JVM, changes this process's copy of its tables as the second argument says, and runs code that no file has. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

struct entry {
  const char *type, *field, *text;
  int32_t is_static;
  uint64_t offset;
  uint64_t *address;
};

static uint64_t forged[64];

int main(int count, char **arguments) {
  const char *change = count > 2 ? arguments[2] : "nothing";
  void *library = dlopen(arguments[1], RTLD_NOW);
  if (!library) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  struct entry **table = dlsym(library, "gHotSpotVMStructs");
  uint64_t *stride = dlsym(library, "gHotSpotVMStructEntryArrayStride");
  if (!strcmp(change, "stride")) *stride = 1 << 20;
  if (!strcmp(change, "table")) *table = (struct entry *)8;
  if (!strcmp(change, "empty")) (*table)->type = 0;
  for (struct entry *it = *table; *change != 't' && it->type; it++) {
    if (!strcmp(change, "offsets") && !it->is_static) it->offset += 8;
    /* A code cache of too many heaps. */
    if (!strcmp(change, "heaps") && it->is_static) {
      if (!strcmp(it->field, "_call_stub_return_address")) *it->address = 1;
      if (!strcmp(it->type, "AbstractInterpreter") && !strcmp(it->field, "_code")) *it->address = (uint64_t)forged;
      if (!strcmp(it->type, "CodeCache") && !strcmp(it->field, "_heaps")) *it->address = (uint64_t)forged;
      forged[0] = 1000;
    }
  }
  char *code = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  /* An endless loop: `jmp` to itself. */
  memcpy(code, "\xeb\xfe", 2);
  ((void (*)(void))code)();
}
