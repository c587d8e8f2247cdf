/* Claims to be PHP 8.2 with a damaged state: the first argument selects the kind of damage. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

const char *version = "X-Powered-By: PHP/8.2.0";
char executor_globals[512];

static char frames[2][64], function[256];
static volatile unsigned long sink;

static void put(char *object, int offset, const void *value) { memcpy(object + offset, &value, 8); }

/* Like the loop, it calls the functions that it runs. */
__attribute__((noinline)) unsigned long burn(unsigned long rounds) {
  for (unsigned long i = 0; i < rounds; i++) sink += i * i;
  return sink;
}

__attribute__((noinline)) unsigned long execute_ex(unsigned long rounds) { return burn(rounds) + 1; }

__attribute__((noinline)) void caller(void) {
  for (;;) execute_ex(1000000);
}

int main(int count, char **arguments) {
  const char *damage = count > 1 ? arguments[1] : version;
  void *unmapped = mmap(0, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  put(executor_globals, 488, frames[0]);
  for (int i = 0; i < 2; i++) put(frames[i], 24, function);
  put(frames[0], 48, frames[1]);
  put(frames[1], 40, (void *)(1 << 17));
  function[0] = 2;
  if (!strcmp(damage, "cycle")) put(frames[1], 40, 0), put(frames[1], 48, frames[0]);
  if (!strcmp(damage, "frame")) put(frames[0], 48, unmapped);
  if (!strcmp(damage, "function")) put(frames[1], 24, unmapped);
  if (!strcmp(damage, "huge")) put(frames[1], 24, (void *)UINTPTR_MAX);
  if (!strcmp(damage, "state")) put(executor_globals, 488, unmapped);
  caller();
}
