/* Preloaded into a program under test: kills it right before the KILL_AT-th call that changes a recording or one of
 * its companion files. If that call is a write, its first half is done before. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static atomic_int calls;

static int is_due(void) {
  static int at = -1;
  if (at < 0) {
    const char *text = getenv("KILL_AT");
    at = text ? atoi(text) : 0;
  }
  return atomic_fetch_add(&calls, 1) + 1 == at;
}

static void die(void) { kill(getpid(), SIGKILL); }

static int is_ours(const char *path) { return strstr(path, ".padata") != NULL; }

static int is_our_file(int file) {
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (length < 0) return 0;
  path[length] = 0;
  return is_ours(path);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int file, const void *bytes, size_t count) {
  if (is_our_file(file) && is_due()) {
    REAL(write)(file, bytes, count / 2);
    die();
  }
  return REAL(write)(file, bytes, count);
}

ssize_t pwrite64(int file, const void *bytes, size_t count, off64_t at) {
  if (is_our_file(file) && is_due()) {
    REAL(pwrite64)(file, bytes, count / 2, at);
    die();
  }
  return REAL(pwrite64)(file, bytes, count, at);
}

int fsync(int file) {
  if (is_our_file(file) && is_due()) die();
  return REAL(fsync)(file);
}

int fdatasync(int file) {
  if (is_our_file(file) && is_due()) die();
  return REAL(fdatasync)(file);
}

int rename(const char *from, const char *to) {
  if (is_ours(from) && is_due()) die();
  return REAL(rename)(from, to);
}

int unlink(const char *path) {
  if (is_ours(path) && is_due()) die();
  return REAL(unlink)(path);
}
