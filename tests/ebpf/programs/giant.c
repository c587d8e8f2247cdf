// A call chain through a very large program: each function is a megabyte away from its callee.

#include <unistd.h>

#define SHOWN __attribute__((noipa))
#define FAR __asm__(".text\n.fill 1 << 20, 1, 0xcc");
#define CALLS(name, next) \
  FAR SHOWN unsigned long name(unsigned long state) { \
    return next(state) + 1; \
  }

static volatile unsigned long sink;

SHOWN unsigned long leaf(unsigned long state) {
  for (int i = 0; i < 8; i++) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
  }
  return state;
}

CALLS(a, leaf)
CALLS(b, a)
CALLS(c, b)
CALLS(d, c)
CALLS(e, d)
CALLS(f, e)
CALLS(g, f)
CALLS(h, g)
CALLS(i, h)
CALLS(j, i)
CALLS(k, j)
CALLS(l, k)
CALLS(m, l)
CALLS(n, m)
CALLS(o, n)
CALLS(p, o)
CALLS(q, p)
CALLS(r, q)
CALLS(s, r)
CALLS(t, s)

int main(void) {
  alarm(300);
  for (unsigned long state = 1;; state++) sink = t(state);
}
