/* A list whose links are addresses, and its check: it has to lie where it lay. */
#define LAPIS_TRACE_IMPLEMENTATION
#include "lapis_trace.h"
#define LAPIS_CHECK_IMPLEMENTATION
#include "lapis_check.h"

enum { NODES = 7, MAP_ANONYMOUS_PRIVATE_FIXED_NOREPLACE = 0x100022 };

struct node {
    struct node *next;
    uint64_t value;
    char rest[48];
};

struct list {
    struct node *head;
    char rest[56];
    struct node nodes[NODES];
};

static int check(void *image, uint64_t bytes, void *context) {
    const struct node *node = ((const struct list *)image)->head;
    (void)bytes, (void)context;
    for (; node != NULL; node = node->next) {
        if (node->value == 0) {
            printf("the node at %p is empty", (const void *)node);
            return 1;
        }
    }
    return 0;
}

static int write_trace(const char *path) {
    unsigned n;
    struct list *list = mmap((void *)0x200000000000, 4096, PROT_READ | PROT_WRITE,
                             MAP_ANONYMOUS_PRIVATE_FIXED_NOREPLACE, -1, 0);
    if (list == MAP_FAILED || LAPIS_TRACE_BEGIN(path, list, sizeof *list) != 0) {
        return 1;
    }
    for (n = 0; n < NODES; n++) {
        struct node *node = &list->nodes[n];
        LAPIS_OP_BEGIN(n + 1);
        LAPIS_ASSIGN(node->value, n + 1);
        LAPIS_ASSIGN(node->next, list->head);
        LAPIS_FLUSH(node, sizeof *node);
        LAPIS_ASSIGN(list->head, node); /* the fence comes too late */
        LAPIS_PERSIST(&list->head, 8);
        LAPIS_OP_END(n + 1);
    }
    return LAPIS_TRACE_END();
}

int main(int count, char **arguments) {
    if (count == 3) {
        return write_trace(arguments[2]);
    }
    return lapis_check(arguments[1], lapis_recorded_address(), check, NULL);
}
