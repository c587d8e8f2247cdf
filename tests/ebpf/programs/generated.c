// Code generated at run time, like by a JIT compiler: it has no unwind information, but it keeps the frame pointer, as
// JIT compilers do for profilers.
//
// With IN_FILE it is in a mapped file, like a Lisp image or ahead-of-time compiled code.

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SHOWN __attribute__((noipa))

static volatile unsigned long sink;

#ifdef __aarch64__
static const unsigned code[] = {
    0xa9be7bfd, // stp x29, x30, [sp, #-32]!
    0x910003fd, // mov x29, sp
    0x52800809, // mov w9, 64
    0x71000529, // subs w9, w9, 1
    0x54ffffe1, // b.ne to the subs
    0xd63f0000, // blr x0
    0xa8c27bfd, // ldp x29, x30, [sp], #32
    0xd65f03c0, // ret
};
#else
static const unsigned char code[] = {
    0x55,                         // push rbp
    0x48, 0x89, 0xe5,             // mov rbp, rsp
    0x53,                         // push rbx
    0x48, 0x83, 0xec, 0x08,       // sub rsp, 8
    0xb9, 0x40, 0x00, 0x00, 0x00, // mov ecx, 64
    0xff, 0xc9,                   // dec ecx
    0x75, 0xfc,                   // jnz to the dec
    0xff, 0xd7,                   // call rdi
    0x48, 0x83, 0xc4, 0x08,       // add rsp, 8
    0x5b,                         // pop rbx
    0x5d,                         // pop rbp
    0xc3,                         // ret
};
#endif

SHOWN unsigned long leaf(void) {
  unsigned long state = sink | 1;
  for (int i = 0; i < 20; i++) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
  }
  return state;
}

SHOWN unsigned long call(unsigned long (*made)(unsigned long (*)(void))) {
  unsigned long all = 0;
  for (int i = 0; i < 1000; i++) all += made(leaf);
  return all;
}

#ifdef IN_FILE
// After a page of other data, in a file next to the program.
static void *make(void) {
  static const char head[4096] = "image";
  char path[4096];
  ssize_t length = readlink("/proc/self/exe", path, sizeof path - 8);
  snprintf(path + length, 8, ".image");
  int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
  if (length < 0 || write(file, head, sizeof head) < 0 || write(file, code, sizeof code) < 0) _exit(1);
  void *memory = mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, sizeof head);
  close(file);
  return memory;
}
#else
static void *make(void) {
  void *memory = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memcpy(memory, code, sizeof code);
  __builtin___clear_cache(memory, (char *)memory + sizeof code);
  mprotect(memory, 4096, PROT_READ | PROT_EXEC);
  return memory;
}
#endif

int main(void) {
  void *memory = make();
  alarm(300);
  for (;;) sink = call(memory) + 1;
}
