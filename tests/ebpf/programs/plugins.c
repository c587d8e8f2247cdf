// Loads libraries alternately, each at the address of the other, and receives calls from them.

#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

#define SHOWN __attribute__((noipa))

#ifndef CALLS
#define CALLS 100
#endif

static volatile unsigned long sink;

SHOWN unsigned long leaf(unsigned long state) {
  for (int i = 0; i < 2000; i++) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
  }
  return state;
}

SHOWN unsigned long use(const char *path, const char *name, unsigned long state) {
  void *library = dlopen(path, RTLD_NOW);
  unsigned long (*call)(unsigned long, unsigned long (*)(unsigned long));
  if (!library || !(call = dlsym(library, name))) abort();
  for (int i = 0; i < CALLS; i++) state = call(state, leaf) + 1;
  dlclose(library);
  return state;
}

int main(int argc, char **argv) {
  alarm(300);
  for (unsigned long state = 1;; state++) {
    sink = use(argv[1], "one", state);
    sink = use(argv[2], "two", state);
  }
}
