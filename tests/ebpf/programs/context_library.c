// A library with the variables of `contexts.c`. NUMBER makes several of them differ.

#include <stdint.h>

#ifndef NUMBER
#define NUMBER 1
#endif

#ifndef EXPORTED
#define EXPORTED __attribute__((visibility("default")))
#endif

EXPORTED __thread void *otel_thread_ctx_v1;
EXPORTED __thread void *custom_labels_current_set;
EXPORTED uint32_t custom_labels_abi_version = 1;
// Other variables before and behind them.
EXPORTED __thread long library_padding[NUMBER] = {NUMBER};

EXPORTED void set_record(void *record) { otel_thread_ctx_v1 = record; }
EXPORTED void set_labels(void *set) { custom_labels_current_set = set; }
EXPORTED long library_number(void) { return library_padding[0]; }
