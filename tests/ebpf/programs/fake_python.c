/* Claims to be CPython 3.12, or the version that its compiler is told, with a damaged state: the first argument selects the kind of damage. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

char _PyRuntime[512];
#ifndef VERSION
#define VERSION 0x030c01f0
#endif
unsigned long Py_Version = VERSION;

static char interpreter[512], thread[512], frames[2][128], cframe[64], code[256];
static volatile unsigned long sink;

static void put(char *object, int offset, const void *value) { memcpy(object + offset, &value, 8); }

__attribute__((noinline)) unsigned long _PyEval_EvalFrameDefault(unsigned long rounds) {
  for (unsigned long i = 0; i < rounds; i++) sink += i * i;
  return sink;
}

__attribute__((noinline)) void caller(void) {
  for (;;) _PyEval_EvalFrameDefault(1000000);
}

int main(int count, char **arguments) {
  const char *damage = count > 1 ? arguments[1] : "none";
  void *unmapped = mmap(0, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  put(_PyRuntime, 40, interpreter);
  put(interpreter, 72, thread);
  put(thread, 136, (void *)pthread_self());
  put(thread, 56, cframe);
  put(cframe, 0, frames[0]);
  put(frames[0], 0, code);
  put(frames[0], 8, frames[1]);
  put(frames[1], 0, code);
  if (!strcmp(damage, "cycle")) put(frames[1], 8, frames[0]);
  if (!strcmp(damage, "frame")) put(frames[1], 8, unmapped);
  if (!strcmp(damage, "code")) put(frames[1], 0, unmapped);
  if (!strcmp(damage, "huge")) put(frames[1], 0, (void *)UINTPTR_MAX);
  if (!strcmp(damage, "thread")) put(interpreter, 72, unmapped);
  if (!strcmp(damage, "threads")) { put(thread, 136, 0); put(thread, 8, thread); }
  if (!strcmp(damage, "cframe")) put(thread, 56, unmapped);
  caller();
}
