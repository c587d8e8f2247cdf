// Each call takes the path of lazy binding, through the PLT header: the target of the header is replaced by code that
// does not bind.

#include <unistd.h>

#define SHOWN __attribute__((noipa))

unsigned long step(unsigned long state);
void resolve(void);
extern void *_GLOBAL_OFFSET_TABLE_[] __attribute__((visibility("hidden")));

static volatile unsigned long sink;

SHOWN unsigned long stepped(unsigned long state) {
  return state * 6364136223846793005 + 1;
}

// At its start, two words have been pushed: by the entry and the header, or both by the header.
__asm__(
    ".text\n"
    ".globl resolve\n"
    ".type resolve, @function\n"
    "resolve: .cfi_startproc\n"
    ".cfi_def_cfa_offset 24\n"
    "  add $16, %rsp\n"
    ".cfi_def_cfa_offset 8\n"
    "  jmp stepped\n"
    "  .cfi_endproc\n"
    ".size resolve, .-resolve\n");

SHOWN unsigned long spin(unsigned long state) {
  for (int i = 0; i < 100000; i++) state = step(state);
  return state;
}

SHOWN unsigned long outer(unsigned long state) {
  unsigned long a = state * 3, b = state * 5, c = state * 7;
  return spin(state) ^ a ^ b ^ c;
}

int main(void) {
  alarm(300);
  _GLOBAL_OFFSET_TABLE_[2] = resolve;
  for (unsigned long state = 1;; state++) sink = outer(state);
}
