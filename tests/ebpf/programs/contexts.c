// Threads with a trace and labels of their own, in OpenTelemetry's thread context and in custom labels. `hostile`
// has pointers and sizes that lead nowhere.

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct record {
    uint8_t trace_id[16];
    uint8_t span_id[8];
    uint8_t valid;
    uint8_t flags;
    uint16_t attributes_size;
    uint8_t attributes[4];
} __attribute__((packed, aligned(8)));

struct string {
    size_t size;
    const char *text;
};

struct label {
    struct string key, value;
};

struct set {
    struct label *labels;
    size_t count, capacity;
};

__attribute__((visibility("default"))) __thread struct record *otel_thread_ctx_v1;
__attribute__((visibility("default"))) __thread struct set *custom_labels_current_set;
__attribute__((visibility("default"))) uint32_t custom_labels_abi_version = 1;
__thread long padding[3] = {1, 2, 3};

static volatile unsigned long sink;

// The barrier keeps the stores before the endless loop.
#define BURN for (unsigned long i = 0;; i++) { sink += i * i + padding[i % 3]; __asm__ volatile("" ::: "memory"); }

static struct string text(const char *text) { return (struct string){strlen(text), text}; }

__attribute__((noinline)) void *traced(void *unused) {
    struct record record = {.valid = 1};
    for (int i = 0; i < 16; i++) record.trace_id[i] = 16 + i;
    for (int i = 0; i < 8; i++) record.span_id[i] = 64 + i;
    otel_thread_ctx_v1 = &record;
    BURN;
    return unused;
}

__attribute__((noinline)) void *labelled(void *unused) {
    struct label labels[] = {
        {text("tenant"), text("acme")},
        {{0, NULL}, text("deleted")},
        {text("route"), text("/cart")},
        {text("tenant"), text("second")},
    };
    struct set set = {labels, 4, 4};
    custom_labels_current_set = &set;
    BURN;
    return unused;
}

__attribute__((noinline)) void *hostile(void *unused) {
    static struct label labels[16];
    for (int i = 0; i < 16; i++) labels[i] = (struct label){{SIZE_MAX - i, (char *)(i * 0x1234567L)}, {1, (char *)-1}};
    labels[0] = (struct label){{6, "target"}, {SIZE_MAX, (char *)labels}};
    struct set sets[] = {{(struct label *)-8, SIZE_MAX, 1}, {labels, SIZE_MAX, 0}, {(struct label *)sets, 3, 0}};
    struct record records[] = {{.valid = 1}, {.valid = 255}};
    void *pointers[] = {(void *)-1, (void *)1, (void *)0xffff800000000000, sets, sets + 1, sets + 2, records};
    for (unsigned long i = 0;; i++) {
        otel_thread_ctx_v1 = pointers[i % 7];
        custom_labels_current_set = pointers[i / 7 % 7];
        for (int burn = 0; burn < 5000; burn++) { sink += i * padding[burn % 3]; __asm__ volatile("" ::: "memory"); }
    }
    return unused;
}

int main(void) {
    pthread_t threads[3];
    pthread_create(&threads[0], NULL, traced, NULL);
    pthread_create(&threads[1], NULL, labelled, NULL);
    pthread_create(&threads[2], NULL, hostile, NULL);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
}
