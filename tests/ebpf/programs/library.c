// The functions called by another file.

unsigned long step(unsigned long state) {
  return state * 6364136223846793005 + 1;
}
