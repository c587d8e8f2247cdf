/* Preloaded into a program under test: counts its calls that change files, by parts of their paths (FAULTS_PATHS, separated by
 * colons), and makes them slow, fail or kill the program; and moves its clock. A test changes the plan while the program runs, in
 * the file FAULTS_PLAN. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { WRITE = 1, SYNC = 2, NAME = 4 };

/* The fields that faults.rs knows by their position. */
static struct plan {
  _Atomic int64_t kinds;       /* that count */
  _Atomic int64_t first, last; /* the calls with a fault, from 1 */
  _Atomic int64_t error;       /* that they fail with; 0: they kill the program */
  _Atomic int64_t delay;       /* nanoseconds, of each call that counts */
  _Atomic int64_t ahead;       /* seconds that the clock is ahead */
  _Atomic int64_t calls;       /* so far */
} *plan;

static const char *paths;

__attribute__((constructor)) static void read_environment(void) {
  const char *path = getenv("FAULTS_PLAN");
  paths = getenv("FAULTS_PATHS");
  int file = path && paths ? open(path, O_RDWR | O_CLOEXEC) : -1;
  if (file < 0) return;
  void *shared = mmap(NULL, sizeof *plan, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (shared != MAP_FAILED) plan = shared;
  close(file);
}

static int is_ours(const char *path) {
  for (const char *part = paths; *part;) {
    size_t length = strcspn(part, ":");
    if (length && memmem(path, strlen(path), part, length)) return 1;
    part += length + (part[length] == ':');
  }
  return 0;
}

static int is_our_file(int file) {
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (length < 0) return 0;
  path[length] = 0;
  return is_ours(path);
}

enum { NONE = 0, KILL = -1 };

/* What happens to this call: nothing, a kill, or an error with this number. */
static int next_fault(int kind) {
  if (!(plan->kinds & kind)) return NONE;
  int64_t delay = plan->delay;
  struct timespec time = {delay / 1000000000, delay % 1000000000};
  if (delay) nanosleep(&time, NULL);
  int64_t call = atomic_fetch_add(&plan->calls, 1) + 1;
  if (call < plan->first || call > plan->last) return NONE;
  return plan->error ? (int)plan->error : KILL;
}

static int fault_of_path(int kind, const char *path) { return plan && is_ours(path) ? next_fault(kind) : NONE; }

static int fault_of_file(int kind, int file) { return plan && is_our_file(file) ? next_fault(kind) : NONE; }

static int fail(int fault) {
  if (fault == KILL) kill(getpid(), SIGKILL);
  errno = fault;
  return -1;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int file, const void *bytes, size_t count) {
  int fault = fault_of_file(WRITE, file);
  if (fault == KILL) REAL(write)(file, bytes, count / 2);
  return fault ? fail(fault) : REAL(write)(file, bytes, count);
}

ssize_t pwrite64(int file, const void *bytes, size_t count, off64_t at) {
  int fault = fault_of_file(WRITE, file);
  if (fault == KILL) REAL(pwrite64)(file, bytes, count / 2, at);
  return fault ? fail(fault) : REAL(pwrite64)(file, bytes, count, at);
}

ssize_t writev(int file, const struct iovec *parts, int count) {
  int fault = fault_of_file(WRITE, file);
  if (fault == KILL) {
    size_t half = 0;
    for (int i = 0; i < count; i++) half += parts[i].iov_len;
    half /= 2;
    for (int i = 0; i < count && half; i++) {
      size_t length = parts[i].iov_len < half ? parts[i].iov_len : half;
      if (REAL(write)(file, parts[i].iov_base, length) < 0) break;
      half -= length;
    }
  }
  return fault ? fail(fault) : REAL(writev)(file, parts, count);
}

int ftruncate64(int file, off64_t length) {
  int fault = fault_of_file(WRITE, file);
  return fault ? fail(fault) : REAL(ftruncate64)(file, length);
}

int fsync(int file) {
  int fault = fault_of_file(SYNC, file);
  return fault ? fail(fault) : REAL(fsync)(file);
}

int fdatasync(int file) {
  int fault = fault_of_file(SYNC, file);
  return fault ? fail(fault) : REAL(fdatasync)(file);
}

int open64(const char *path, int flags, ...) {
  mode_t mode = 0;
  if (flags & (O_CREAT | __O_TMPFILE)) {
    va_list arguments;
    va_start(arguments, flags);
    mode = va_arg(arguments, mode_t);
    va_end(arguments);
  }
  int fault = flags & O_CREAT ? fault_of_path(NAME, path) : NONE;
  return fault ? fail(fault) : REAL(open64)(path, flags, mode);
}

int mkdir(const char *path, mode_t mode) {
  int fault = fault_of_path(NAME, path);
  return fault ? fail(fault) : REAL(mkdir)(path, mode);
}

int rename(const char *from, const char *to) {
  int fault = fault_of_path(NAME, from);
  return fault ? fail(fault) : REAL(rename)(from, to);
}

int unlink(const char *path) {
  int fault = fault_of_path(NAME, path);
  return fault ? fail(fault) : REAL(unlink)(path);
}

int clock_gettime(clockid_t clock, struct timespec *time) {
  static __typeof__(&clock_gettime) real;
  if (!real) real = REAL(clock_gettime);
  int failed = real(clock, time);
  if (!failed && plan && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) time->tv_sec += plan->ahead;
  return failed;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
  int failed = REAL(gettimeofday)(time, zone);
  if (!failed && plan) time->tv_sec += plan->ahead;
  return failed;
}
