/* Several threads that record at once, several traces of one process, and each macro. */
#define LAPIS_TRACE_IMPLEMENTATION
#include "lapis_trace.h"

#include <pthread.h>

#define THREADS 4
#define STORES 2000
#define BYTES (1 << 20)

static unsigned char memory[BYTES] __attribute__((aligned(64)));

static void *work(void *argument) {
    uint64_t thread = (uint64_t)(uintptr_t)argument;
    uint64_t *words = (uint64_t *)(void *)(memory + thread * 64 * 1024);
    uint64_t index;
    LAPIS_WORKER(thread + 1);
    for (index = 0; index < STORES; index++) {
        LAPIS_ASSIGN(words[index], thread << 32 | index);
    }
    LAPIS_PERSIST(words, STORES * 8);
    return NULL;
}

int main(int count, char **arguments) {
    pthread_t threads[THREADS];
    uint64_t thread;
    uint64_t *words = (uint64_t *)(void *)memory;
    uint64_t elsewhere = 0;
    if (count != 3) {
        return 2;
    }
    /* Each macro once. */
    memory[5000] = 7;
    if (LAPIS_TRACE_BEGIN(arguments[1], memory, BYTES) != 0) {
        return 1;
    }
    LAPIS_OP_BEGIN(1);
    memset(memory + 3, 0x11, 10000);
    LAPIS_STORE(memory + 3, 10000);
    words[0] = 5;
    LAPIS_STORE_ORDERED(&words[0], 8);
    LAPIS_LOCKED(&words[0], 8);
    LAPIS_NT_STORE(&words[8], 64);
    LAPIS_ASSIGN(elsewhere, 1);
    LAPIS_FLUSH(memory, 64 * 20);
    LAPIS_CLFLUSHOPT(&words[8], 8);
    LAPIS_CLFLUSH(&words[16], 8);
    LAPIS_FENCE();
    LAPIS_ASSERT_DURABLE(words, 8);
    LAPIS_ASSERT_ORDERED(&words[0], 8, &words[1], 8);
    LAPIS_VOLATILE(&words[2], 8);
    LAPIS_NOTE(9);
    LAPIS_OP_END(1);
    if (LAPIS_TRACE_SYNC() != 0 || LAPIS_TRACE_END() != 0 || elsewhere != 1) {
        return 1;
    }
    if (LAPIS_TRACE_BEGIN(arguments[2], memory, BYTES) != 0) {
        return 1;
    }
    for (thread = 0; thread < THREADS; thread++) {
        if (pthread_create(&threads[thread], NULL, work, (void *)(uintptr_t)thread) != 0) {
            return 1;
        }
    }
    for (thread = 0; thread < THREADS; thread++) {
        pthread_join(threads[thread], NULL);
    }
    return LAPIS_TRACE_END();
}
