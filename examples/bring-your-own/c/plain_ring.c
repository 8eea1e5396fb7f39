/* The ring of ring.c as a program that knows nothing of Lapis: it maps a file and uses the processor's own instructions.
 *
 *     cc -g -O1 -o plain_ring examples/bring-your-own/c/plain_ring.c
 *     lapis trace --map pool --output-acknowledges -o ring.trace -- ./plain_ring pool
 *     lapis crash --trace ring.trace --recover './ring check'
 *
 * With -DPLANTED_BUG, the entry and the tail that makes it reachable share one fence; with -DLATE_FLUSH, an operation is
 * acknowledged before its head is durable.
 */

#include <fcntl.h>
#include <immintrin.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#define CAPACITY 8
#define WORDS 8

typedef struct ring {
    uint64_t head;
    uint64_t tail;
    uint64_t unused[6];
    uint64_t entries[CAPACITY][WORDS];
} ring;

__attribute__((target("clwb"))) static void flush(const void *at) {
    _mm_clwb((void *)at);
}

static void push(volatile ring *r) {
    uint64_t number = r->tail;
    volatile uint64_t *entry = r->entries[number % CAPACITY];
    uint64_t word;
    for (word = 0; word < WORDS; word++) {
        entry[word] = word == 0 ? number + 1 : (number + 1) * 0x9E3779B97F4A7C15u + word;
    }
    flush((const void *)entry);
#ifndef PLANTED_BUG
    _mm_sfence();
#endif
    r->tail = number + 1;
    flush((const void *)&r->tail);
    _mm_sfence();
}

static void pop(volatile ring *r) {
    r->head = r->head + 1;
    flush((const void *)&r->head);
#ifndef LATE_FLUSH
    _mm_sfence();
#endif
}

int main(int count, char **arguments) {
    volatile ring *r;
    unsigned operation;
    int file = count == 2 ? open(arguments[1], O_RDWR | O_CREAT, 0644) : -1;
    if (file < 0 || ftruncate(file, sizeof *r) != 0) {
        fprintf(stderr, "usage: plain_ring FILE\n");
        return 2;
    }
    r = (volatile ring *)mmap(NULL, sizeof *r, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if ((const void *)r == MAP_FAILED) {
        perror(arguments[1]);
        return 2;
    }
    for (operation = 1; operation <= 40; operation++) {
        if (r->tail - r->head == CAPACITY) {
            pop(r);
        } else {
            push(r);
        }
        printf("%u\n", operation); /* acknowledged: must survive from here on */
        fflush(stdout);
    }
    return 0;
}
