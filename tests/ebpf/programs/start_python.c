/* Preloaded into an executable that contains CPython and runs a program of its own: it runs the script in its first
   argument instead, or the text after -c, as `python` does. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <wchar.h>

#define MAX_ARGUMENTS 16
#define FUNCTION(result, name, ...) result (*name)(__VA_ARGS__) = dlsym(RTLD_DEFAULT, #name)

static int run(int count, char **arguments, char **environment) {
  FUNCTION(void, Py_InitializeEx, int);
  FUNCTION(wchar_t *, Py_DecodeLocale, const char *, size_t *);
  FUNCTION(void, PySys_SetArgvEx, int, wchar_t **, int);
  FUNCTION(int, PyRun_SimpleStringFlags, const char *, void *);
  FUNCTION(int, PyRun_SimpleFileExFlags, FILE *, const char *, int, void *);
  FUNCTION(int, Py_FinalizeEx, void);
  if (count < 2 || count > MAX_ARGUMENTS) return 2;
  Py_InitializeEx(1);
  wchar_t *decoded[MAX_ARGUMENTS];
  for (int at = 1; at < count; at++) decoded[at - 1] = Py_DecodeLocale(arguments[at], NULL);
  PySys_SetArgvEx(count - 1, decoded, 0);
  int result;
  if (!strcmp(arguments[1], "-c")) {
    result = count > 2 ? PyRun_SimpleStringFlags(arguments[2], NULL) : -1;
  } else {
    FILE *script = fopen(arguments[1], "r");
    result = script ? PyRun_SimpleFileExFlags(script, arguments[1], 1, NULL) : -1;
  }
  return Py_FinalizeEx() || result;
}

int __libc_start_main(int (*own)(int, char **, char **), int count, char **arguments, void (*start)(void),
                      void (*end)(void), void (*loader_end)(void), void *stack_end) {
  int (*real)(int (*)(int, char **, char **), int, char **, void (*)(void), void (*)(void), void (*)(void), void *) =
      dlsym(RTLD_NEXT, "__libc_start_main");
  return real(run, count, arguments, start, end, loader_end, stack_end);
}
