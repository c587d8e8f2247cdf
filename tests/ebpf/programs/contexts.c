// Threads with a trace and labels of their own, in OpenTelemetry's thread context and in custom labels. `hostile`
// has pointers and sizes that lead nowhere.
//
// The variables are in the program, with LINKED in a library that it needs, and with OPENED in libraries. The arguments say in which order
// it opens a library (its path), closes it (`close`), waits (seconds), and
// starts the first two threads (`start`). The others start at the end: they would not survive that a library is closed.

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct record {
    uint8_t trace_id[16];
    uint8_t span_id[8];
    uint8_t valid;
    uint8_t flags;
    uint16_t attributes_size;
    uint8_t attributes[12];
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

__thread long padding[3] = {1, 2, 3};

#if defined LINKED
void set_record(void *record);
void set_labels(void *set);
#elif defined OPENED
static void (*set_record)(void *), (*set_labels)(void *);
#else
__attribute__((visibility("default"))) __thread void *otel_thread_ctx_v1;
__attribute__((visibility("default"))) __thread void *custom_labels_current_set;
__attribute__((visibility("default"))) uint32_t custom_labels_abi_version = 1;
static void set_record(void *record) { otel_thread_ctx_v1 = record; }
static void set_labels(void *set) { custom_labels_current_set = set; }
#endif

static volatile unsigned long sink;

// The barrier keeps the stores before the endless loop.
#define BURN for (unsigned long i = 0;; i++) { sink += i * i + padding[i % 3]; __asm__ volatile("" ::: "memory"); }

static struct string text(const char *text) { return (struct string){strlen(text), text}; }

__attribute__((noinline)) void *traced(void *unused) {
    struct record record = {.valid = 1, .attributes_size = 11, .attributes = "\0\5/shop\1\1x\0\6"};
    for (int i = 0; i < 16; i++) record.trace_id[i] = 16 + i;
    for (int i = 0; i < 8; i++) record.span_id[i] = 64 + i;
    set_record(&record);
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
    set_labels(&set);
    BURN;
    return unused;
}

__attribute__((noinline)) void *hostile(void *unused) {
    static struct label labels[16];
    for (int i = 0; i < 16; i++) labels[i] = (struct label){{SIZE_MAX - i, (char *)(i * 0x1234567L)}, {1, (char *)-1}};
    labels[0] = (struct label){{6, "target"}, {SIZE_MAX, (char *)labels}};
    struct set sets[] = {{(struct label *)-8, SIZE_MAX, 1}, {labels, SIZE_MAX, 0}, {(struct label *)sets, 3, 0}};
    struct record records[] = {{.valid = 1, .attributes_size = UINT16_MAX}, {.valid = 255}};
    void *pointers[] = {(void *)-1, (void *)1, (void *)0xffff800000000000, sets, sets + 1, sets + 2, records};
    for (unsigned long i = 0;; i++) {
        set_record(pointers[i % 7]);
        set_labels(pointers[i / 7 % 7]);
        for (int burn = 0; burn < 5000; burn++) { sink += i * padding[burn % 3]; __asm__ volatile("" ::: "memory"); }
    }
    return unused;
}

// The table of the TLS blocks leads nowhere, or to blocks without an end.
__attribute__((noinline)) void *forger(void *unused) {
    static void *blocks[64], *table[64], *short_table[64];
    for (int i = 0; i < 64; i++) {
        blocks[i] = (void *)(i % 2 ? blocks : (void **)-1);
        table[i] = i < 3 ? (void *)-1 : (void *)(i % 3 ? blocks : (void **)(0xffff800000000000 + i));
    }
    void *tables[] = {(void *)-1, (void *)1, (void *)0xffff800000000000, table + 2, short_table + 2, table + 3, NULL};
#if defined __x86_64__
    void **place;
    __asm__("mov %%fs:0, %0" : "=r"(place));
    for (unsigned long i = 0;; i++) {
        // Nothing here uses the table.
        place[1] = tables[i % 7];
        for (int burn = 0; burn < 5000; burn++) { sink += i * burn; __asm__ volatile("" ::: "memory"); }
    }
#endif
    return unused;
}

// The process context, with the keys of the attributes: one has none, and one is cut off.
static void publish(void) {
    static const char payload[] = "\x12\x2c\x0a\x1d" "threadlocal.attribute_key_map" "\x12\x0b\x2a\x09\x0a\x07\x0a\x05" "route";
    struct header {
        char signature[8];
        uint32_t version, size;
        uint64_t published_at;
        const char *payload;
    };
    int file = syscall(SYS_memfd_create, "OTEL_CTX", 0);
    struct header *header;
    if (ftruncate(file, sizeof *header) != 0) return;
    header = mmap(NULL, sizeof *header, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    *header = (struct header){"OTEL_CTX", 2, sizeof payload - 1, 1, payload};
}

typedef void *function(void *);

static pthread_t threads[4];
static int started;

static void start(int count) {
    function *functions[] = {traced, labelled, hostile, forger};
    while (started < count) {
        pthread_create(&threads[started], NULL, functions[started], NULL);
        started++;
    }
}

int main(int count, char **words) {
    publish();
#ifdef OPENED
    void *library = NULL;
    for (char **word = words + 1; *word; word++) {
        if (**word == '/') {
            library = dlopen(*word, RTLD_NOW);
            if (library == NULL) return 1;
            set_record = (void (*)(void *))dlsym(library, "set_record");
            set_labels = (void (*)(void *))dlsym(library, "set_labels");
        } else if (strcmp(*word, "close") == 0) {
            dlclose(library);
        } else if (strcmp(*word, "start") == 0) {
            start(2);
        } else {
            for (time_t end = time(NULL) + atoi(*word); time(NULL) < end;) sink++;
        }
    }
#endif
#if defined LINKED || defined OPENED
    start(4);
#else
    start(3);
#endif
    for (int i = 0; i < started; i++) pthread_join(threads[i], NULL);
}
