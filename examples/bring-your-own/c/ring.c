/* A persistent ring of entries, in C, and its check.
 *
 *     cc -std=c99 -I include -o ring examples/bring-your-own/c/ring.c
 *     ./ring write ring.trace
 *     lapis crash --trace ring.trace --recover './ring check'
 *
 * With -DPLANTED_BUG, the entry and the tail that makes it reachable share one fence, so that a
 * power cut may leave a tail beyond an entry that is not there.
 *
 * Layout:
 *
 *     byte 0      8      16          64                     64 + 64 * CAPACITY
 *          +------+------+-----------+--------+--------+----+
 *          | head | tail |           | entry  | entry  | …  |
 *          +------+------+-----------+--------+--------+----+
 *
 * Entries head to tail - 1 are in the ring; entry n lies in slot n % CAPACITY.
 */

#define LAPIS_TRACE_IMPLEMENTATION
#include "lapis_trace.h"
#define LAPIS_CHECK_IMPLEMENTATION
#include "lapis_check.h"

#define CAPACITY 8
#define WORDS 8

typedef struct ring {
    uint64_t head;
    uint64_t tail;
    uint64_t unused[6];
    uint64_t entries[CAPACITY][WORDS];
} ring;

/* What entry `number` holds at `word`. */
static uint64_t expected(uint64_t number, uint64_t word) {
    return word == 0 ? number + 1 : (number + 1) * 0x9E3779B97F4A7C15u + word;
}

/* In a real program: flushes and a fence, and beside them these records. */
static void push(ring *r) {
    uint64_t number = r->tail;
    uint64_t *entry = r->entries[number % CAPACITY];
    uint64_t word;
    for (word = 0; word < WORDS; word++) {
        entry[word] = expected(number, word);
    }
    LAPIS_STORE(entry, WORDS * sizeof *entry);
    LAPIS_FLUSH(entry, WORDS * sizeof *entry);
#ifndef PLANTED_BUG
    LAPIS_FENCE();
#endif
    LAPIS_ASSIGN(r->tail, number + 1);
    LAPIS_ASSERT_ORDERED(entry, WORDS * sizeof *entry, &r->tail, sizeof r->tail);
    LAPIS_FLUSH(&r->tail, sizeof r->tail);
    LAPIS_FENCE();
    LAPIS_ASSERT_DURABLE(&r->tail, sizeof r->tail);
}

static void pop(ring *r) {
    LAPIS_ASSIGN(r->head, r->head + 1);
    LAPIS_PERSIST(&r->head, sizeof r->head);
}

static int write_trace(const char *path) {
    static ring memory __attribute__((aligned(64)));
    unsigned operation;
    int error = LAPIS_TRACE_BEGIN(path, &memory, sizeof memory);
    if (error != 0) {
        fprintf(stderr, "%s: %s\n", path, strerror(error));
        return 1;
    }
    for (operation = 1; operation <= 40; operation++) {
        LAPIS_OP_BEGIN(operation);
        if (memory.tail - memory.head == CAPACITY) {
            pop(&memory);
        } else {
            push(&memory);
        }
        LAPIS_OP_END(operation);
    }
    return LAPIS_TRACE_END() == 0 ? 0 : 1;
}

/* 0 if the ring in the image is one that a power cut may leave. */
static int check(void *image, uint64_t bytes, void *context) {
    const ring *r = (const ring *)image;
    uint64_t number, word;
    const char *acknowledged;
    (void)context;
    if (bytes < sizeof *r) {
        printf("%lu bytes are no ring\n", (unsigned long)bytes);
        return 2;
    }
    if (r->tail - r->head > CAPACITY) {
        printf("head %lu, tail %lu\n", (unsigned long)r->head, (unsigned long)r->tail);
        return 1;
    }
    for (number = r->head; number < r->tail; number++) {
        for (word = 0; word < WORDS; word++) {
            if (r->entries[number % CAPACITY][word] != expected(number, word)) {
                printf("word %lu of entry %lu is wrong\n", (unsigned long)word,
                       (unsigned long)number);
                return 1;
            }
        }
    }
    /* Each operation moves one of the two: as many as were acknowledged, and perhaps one more. */
    acknowledged = getenv("LAPIS_ACKNOWLEDGED");
    if (acknowledged != NULL && r->head + r->tail < strtoull(acknowledged, NULL, 10)) {
        printf("an acknowledged operation is lost\n");
        return 1;
    }
    printf("entries %lu to %lu\n", (unsigned long)r->head, (unsigned long)r->tail);
    return 0;
}

int main(int count, char **arguments) {
    if (count == 3 && strcmp(arguments[1], "write") == 0) {
        return write_trace(arguments[2]);
    }
    if (count == 3 && strcmp(arguments[1], "check") == 0) {
        return lapis_check(arguments[2], NULL, check, NULL);
    }
    fprintf(stderr, "usage: ring write TRACE | ring check IMAGE\n");
    return 2;
}
